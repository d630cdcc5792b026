#include "tanren/sweep/scheduler.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"

#include <algorithm>

namespace tanren {

namespace {

void require(bool fine, const std::string& problem) {
  if (!fine) throw ConfigError("[sweep] " + problem);
}

void check_judged(const std::string& key, int64_t steps, int64_t whole) {
  require(steps < whole,
          fmt::format("{} is {} and a whole trial has {} steps; no trial would be judged before "
                      "its end",
                      key, steps, whole));
}

// Starts every trial and never stops one.
class PlainScheduler final : public Scheduler {
 public:
  explicit PlainScheduler(const SchedulerOptions& options) : options_(options) {}

  Decision next() const override {
    if (started_ < options_.trials) return {.kind = Decision::start, .until = options_.steps};
    return {.kind = running_ > 0 ? Decision::wait : Decision::end};
  }
  void started(int64_t, int64_t, bool runs) override {
    ++started_;
    if (runs) ++running_;
  }
  void resumed(int64_t, int64_t) override { ++running_; }
  void forked(int64_t, int64_t, int64_t) override {}
  void told(int64_t, int64_t, double) override { --running_; }
  void put_off(int64_t) override { --running_; }
  int64_t last_step() const override { return options_.steps; }
  void grow(int64_t trials) override { options_.trials = trials; }

 private:
  SchedulerOptions options_;
  int64_t started_ = 0, running_ = 0;
};

// Decides nothing: it counts what another program has decided.
class ExternalScheduler final : public Scheduler {
 public:
  explicit ExternalScheduler(const SchedulerOptions& options) : options_(options) {}

  Decision next() const override {
    const bool is_over = started_ >= options_.trials && running_ == 0;
    return {.kind = is_over ? Decision::end : Decision::wait};
  }
  void started(int64_t, int64_t, bool runs) override {
    ++started_;
    if (runs) ++running_;
  }
  void resumed(int64_t, int64_t) override { ++running_; }
  void forked(int64_t, int64_t, int64_t) override {}  // in the place of one that ran
  void told(int64_t, int64_t, double) override { --running_; }
  void put_off(int64_t) override { --running_; }
  bool is_external() const override { return true; }
  bool lets_wait() const override { return false; }
  int64_t last_step() const override { return options_.steps; }
  void grow(int64_t trials) override { options_.trials = trials; }

 private:
  SchedulerOptions options_;
  int64_t started_ = 0, running_ = 0;
};

}  // namespace

std::unique_ptr<Scheduler> make_plain_scheduler(const SchedulerOptions& options) {
  return std::make_unique<PlainScheduler>(options);
}

std::unique_ptr<Scheduler> make_scheduler(const SchedulerOptions& options) {
  const std::string& kind = options.kind;
  require(options.trials > 0, fmt::format("trials is {}; give 1 or more", options.trials));
  require(options.steps >= 0, fmt::format("steps is {}; give 0 or more", options.steps));
  if (kind == "none") return make_plain_scheduler(options);
  if (kind == "external") return std::make_unique<ExternalScheduler>(options);
  const std::vector<std::string> kinds = {"none", "asha", "pbt", "external"};
  const std::string near = nearest(kind, kinds);
  require(std::find(kinds.begin(), kinds.end(), kind) != kinds.end(),
          "scheduler \"" + kind + "\" is unknown; one of " + join(kinds) +
              (near.empty() ? "" : " (nearest: " + near + ")"));
  require(options.steps > 0, kind + " needs the steps of a whole trial; set steps");
  if (kind == "asha") {
    require(options.first_rung > 0, "asha needs first_rung, the steps of its first rung; set it");
    require(options.reduction >= 2,
            fmt::format("reduction is {}; give 2 or more", options.reduction));
    check_judged("first_rung", options.first_rung, options.steps);
    return make_asha_scheduler(options);
  }
  require(options.trials >= 2, "pbt needs a population of 2 or more; raise trials");
  require(options.interval > 0, "pbt needs interval, the steps between exchanges; set it");
  check_judged("interval", options.interval, options.steps);
  return make_pbt_scheduler(options);
}

std::vector<int64_t> rungs_of(int64_t first_rung, int64_t reduction, int64_t steps) {
  std::vector<int64_t> rungs;
  // The break avoids an overflow: the next rung would be above `steps`.
  for (int64_t rung = first_rung; rung < steps; rung *= reduction) {
    rungs.push_back(rung);
    if (rung > steps / reduction) break;
  }
  rungs.push_back(steps);
  return rungs;
}

}  // namespace tanren
