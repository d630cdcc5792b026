#include "tanren/sweep/scheduler.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>
#include <unordered_map>
#include <utility>

namespace tanren {

namespace {

// Population-based training (Jaderberg et al. 1711.09846). All members train up to the next
// exchange. Then forks of the best quarter replace the worst quarter and the failed members. The
// exchange waits for all members, so their speed has no influence.
class PbtScheduler final : public Scheduler {
 public:
  explicit PbtScheduler(const SchedulerOptions& options)
      : options_(options), target_(std::min(options.interval, options.steps)) {}

  Decision next() const override {
    if (std::ssize(members_) < options_.trials) return {.kind = Decision::start, .until = target_};
    if (!forks_.empty()) {
      const auto& [replaced, source] = forks_.front();
      return {.kind = Decision::fork, .trial = replaced, .source = source, .until = target_};
    }
    if (!ready_.empty()) {
      return {.kind = Decision::resume, .trial = ready_.front(), .until = target_};
    }
    return {.kind = num_running_ > 0 ? Decision::wait : Decision::end};
  }

  void started(int64_t trial, int64_t, bool) override {
    member_of_[trial] = members_.size();
    members_.push_back({trial});
    ++num_running_;
  }

  void resumed(int64_t trial, int64_t) override {
    std::erase(ready_, trial);
    ++num_running_;
  }

  void forked(int64_t trial, int64_t, int64_t replaced) override {
    forks_.pop_front();
    const size_t member = member_of_.at(replaced);
    member_of_[trial] = member;
    members_[member] = {trial};
    ++num_running_;
  }

  void told(int64_t trial, int64_t, double cost) override {
    --num_running_;
    members_[member_of_.at(trial)].cost = cost;
    const bool are_all_there = std::ssize(members_) == options_.trials && num_running_ == 0 &&
                               forks_.empty() && ready_.empty();
    if (are_all_there && target_ < options_.steps) exchange();
  }

  void put_off(int64_t) override {}
  bool lets_wait() const override { return false; }  // the others would wait for it
  int64_t last_step() const override { return options_.steps; }
  void grow(int64_t trials) override { options_.trials = trials; }

 private:
  struct Member {
    int64_t trial;
    double cost = 0;  // at the last exchange
  };

  void exchange() {
    std::vector<Member> order = members_;
    std::sort(order.begin(), order.end(), [](const Member& a, const Member& b) {
      return std::pair(a.cost, a.trial) < std::pair(b.cost, b.trial);
    });
    const auto all = order.size();
    const auto alive =
        static_cast<size_t>(std::count_if(order.begin(), order.end(), [](const Member& member) {
          return std::isfinite(member.cost);
        }));
    if (alive == 0) return;  // no member can be forked
    target_ = std::min(target_ + options_.interval, options_.steps);
    const size_t quarter = std::min((all + 3) / 4, all / 2);
    const size_t num_sources = std::min(quarter, alive);
    const size_t num_replaced = std::max(quarter, all - alive);
    for (size_t i = 0; i < num_replaced; ++i) {  // the worst gets the best, and so on
      forks_.emplace_back(order[all - 1 - i].trial, order[i % num_sources].trial);
    }
    for (const Member& member : members_) {
      const bool is_replaced = std::any_of(forks_.begin(), forks_.end(), [&](const auto& fork) {
        return fork.first == member.trial;
      });
      if (!is_replaced) ready_.push_back(member.trial);
    }
  }

  SchedulerOptions options_;
  int64_t target_;  // the step of the next exchange, or the last step
  std::vector<Member> members_;
  std::unordered_map<int64_t, size_t> member_of_;  // by trial
  std::deque<std::pair<int64_t, int64_t>> forks_;  // replaced and source, before any resumes
  std::deque<int64_t> ready_;                      // to be resumed
  int64_t num_running_ = 0;
};

}  // namespace

std::unique_ptr<Scheduler> make_pbt_scheduler(const SchedulerOptions& options) {
  return std::make_unique<PbtScheduler>(options);
}

}  // namespace tanren
