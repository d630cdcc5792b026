// Selection: what evaluations have decided about a run so far: which steps were the best, and for
// how many evaluations it has not improved. Part of the checkpoint, so that a resumed run decides
// the same. A value; judged by the loop, once per evaluation.
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
  std::string best_by, record_by;  // metric and direction of the values

  // Adopts a plan's metrics and drops the values of other metrics. If the plan has no early stop,
  // `record` and `waited` are reset too, because later evaluations may use other data.
  void adopt(const Plan& plan);
  // Judges an evaluation and sets report.ends_run if it ends the run. True if its step is now among
  // the best. ConfigError if the report lacks a metric that the plan names: then nothing is judged.
  bool judge(const Plan& plan, EvaluationReport& report);
  // Why the run ends before its length; empty if it continues.
  std::string end_reason(const Plan& plan) const;

  State state() const;
  // Values that `state` lacks (an older checkpoint) stay empty.
  void load(const State& state);
};

}  // namespace tanren
