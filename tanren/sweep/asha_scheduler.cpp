#include "tanren/sweep/scheduler.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

namespace tanren {

namespace {

// Cost and number of a trial: of equal costs the older trial is better.
using Result = std::pair<double, int64_t>;

// The results at one rung. The best of them, one in `reduction`, are the top. O(log n) each.
class RungResults {
 public:
  explicit RungResults(int64_t reduction) : reduction_(reduction) {}

  void add(const Result& result) {
    rest_.insert(result);
    if (std::isfinite(result.first)) here_.insert(result);
    if (!top_.empty() && *rest_.begin() < *top_.rbegin()) {
      const Result worst = *top_.rbegin();
      enter_top();
      top_.erase(worst);
      open_.erase(worst);
      rest_.insert(worst);
    }
    const auto all = std::ssize(top_) + std::ssize(rest_);
    if (std::ssize(top_) < all / reduction_) enter_top();
  }
  void goes_on(const Result& result) {
    open_.erase(result);
    here_.erase(result);
  }

  // The best of the top that has a value and has not left the rung. Null if there is none.
  const Result* promotable() const { return open_.empty() ? nullptr : &*open_.begin(); }
  // The same, but of all results.
  const Result* best_here() const { return here_.empty() ? nullptr : &*here_.begin(); }

 private:
  void enter_top() {
    const Result best = *rest_.begin();
    rest_.erase(rest_.begin());
    top_.insert(best);
    if (here_.count(best) > 0) open_.insert(best);
  }

  int64_t reduction_;
  std::set<Result> top_, rest_;  // all
  std::set<Result> here_;        // with a value, and still at this rung
  std::set<Result> open_;        // of these, those in the top
};

// Asynchronous successive halving (Li et al. 1810.05934) by promotion. A trial pauses at each rung
// and continues when it is among the best 1 / reduction there, however late that is. Promotions
// from the highest rung come first, then new trials. If too few trials reach the last rung for a
// promotion from it, the best trial of the highest rung continues, so that one trial finishes.
class AshaScheduler final : public Scheduler {
 public:
  explicit AshaScheduler(const SchedulerOptions& options)
      : options_(options),
        rungs_(rungs_of(options.first_rung, options.reduction, options.steps)),
        results_(rungs_.size(), RungResults(options.reduction)) {}

  Decision next() const override {
    for (size_t rung = rungs_.size() - 1; rung-- > 0;) {
      if (const Result* best = results_[rung].promotable()) return promote(best->second, rung);
    }
    if (num_started_ < options_.trials) return {.kind = Decision::start, .until = rungs_[0]};
    if (num_running_ > 0) return {.kind = Decision::wait};
    const bool needs_one = results_.back().best_here() == nullptr && put_off_.empty();
    for (size_t rung = rungs_.size() - 1; needs_one && rung-- > 0;) {
      if (const Result* best = results_[rung].best_here()) return promote(best->second, rung);
    }
    return {.kind = Decision::end};
  }

  void started(int64_t trial, int64_t, bool runs) override {
    ++num_started_;
    if (runs) ++num_running_;
    standing_of(trial).rung = 0;
  }

  void resumed(int64_t trial, int64_t until) override {
    ++num_running_;
    Standing& standing = standing_of(trial);
    if (put_off_.erase(trial) > 0) return;  // on the way to the same rung
    results_[standing.rung].goes_on({standing.cost, trial});
    const auto rung = std::lower_bound(rungs_.begin(), rungs_.end() - 1, until);
    standing.rung = static_cast<size_t>(rung - rungs_.begin());
  }

  void forked(int64_t, int64_t, int64_t) override {}

  void told(int64_t trial, int64_t, double cost) override {
    --num_running_;
    Standing& standing = standing_of(trial);
    standing.cost = cost;
    results_[standing.rung].add({cost, trial});
  }

  void put_off(int64_t trial) override {
    --num_running_;
    put_off_.insert(trial);
  }

  int64_t last_step() const override { return options_.steps; }
  void grow(int64_t trials) override { options_.trials = trials; }

 private:
  struct Standing {
    size_t rung = 0;  // that it stands at, or runs to
    double cost = 0;  // there
  };

  Decision promote(int64_t trial, size_t rung) const {
    return {.kind = Decision::resume, .trial = trial, .until = rungs_[rung + 1]};
  }

  Standing& standing_of(int64_t trial) {
    const auto index = static_cast<size_t>(trial);
    if (index >= standings_.size()) standings_.resize(index + 1);
    return standings_[index];
  }

  SchedulerOptions options_;
  std::vector<int64_t> rungs_;  // steps
  std::vector<RungResults> results_;
  std::vector<Standing> standings_;  // by trial
  std::set<int64_t> put_off_;
  int64_t num_started_ = 0, num_running_ = 0;
};

}  // namespace

std::unique_ptr<Scheduler> make_asha_scheduler(const SchedulerOptions& options) {
  return std::make_unique<AshaScheduler>(options);
}

}  // namespace tanren
