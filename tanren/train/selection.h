// Selection: what evaluations have decided about a run so far: which steps were the best, and for
// how many evaluations it has not improved. Part of the checkpoint, so that a resumed run decides
// alike. A value; judged by the loop, once per evaluation.
#pragma once

#include "tanren/base/report.h"
#include "tanren/base/state.h"
#include "tanren/plan/plan.h"

#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct Ranked {
  int64_t step = 0;
  double value = 0;
};

struct Selection {
  std::vector<Ranked> best;        // best first, at most checkpoint.best; a NaN is never among them
  std::optional<Ranked> record;    // early stop: the last that was better than all before
  int64_t waited = 0;              // evaluations since then
  int64_t judged_step = -1;        // of the last evaluation: one step is judged once
  std::string best_by, record_by;  // what the values are of

  // Takes a plan's metrics over: what was measured by others does not count, nor, where the plan stops
  // nothing early, what was waited for: evaluations may then be of other data.
  void adopt(const Plan& plan);
  // Judges an evaluation, and writes report.ends_run where it ends the run. True if its step is now
  // among the best. ConfigError if the report lacks a metric that the plan names: then
  // nothing is judged.
  bool judge(const Plan& plan, EvaluationReport& report);
  // Why the run ends before its length; empty: it goes on.
  std::string end_reason(const Plan& plan) const;

  State state() const;
  // What is not in `state` (a checkpoint from before) stays empty.
  void load(const State& state);
};

}  // namespace tanren
