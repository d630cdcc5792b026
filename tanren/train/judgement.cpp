#include "tanren/train/judgement.h"

#include "tanren/base/error.h"
#include "tanren/base/log.h"
#include "tanren/base/text.h"
#include "tanren/config/kinds.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tanren {

namespace {

bool is_due(const Plan& plan, int64_t step) {
  return plan.evaluate.every > 0 && step % plan.evaluate.every == 0;
}

// The value that reduce_on_plateau watches.
double value_for_schedule(const EvaluationReport& report, const std::string& metric) {
  for (const auto& [name, value] : report.values) {
    if (name == metric) return value;
  }
  throw ConfigError("[schedule] the evaluation has no value '" + metric +
                    "' (schedule.metric); take one of evaluate.metrics, or loss");
}

}  // namespace

bool evaluations_decide(const Plan& plan) {
  return plan.checkpoint.best > 0 || plan.early_stop.patience > 0 ||
         std::any_of(plan.objectives.begin(), plan.objectives.end(),
                     [](const ObjectivePlan& own) { return reads_evaluations(own.schedule); });
}

bool judge(RunState& run, const Plan& plan, EvaluationReport& report, bool tells) {
  if (run.selection.judged_step == report.step) return false;
  std::vector<std::pair<Objective*, double>> observing;
  for (auto& phase : run.phases) {
    for (auto& objective : phase.objectives) {
      if (!objective.plateau.is_on() || !is_due(plan, report.step)) continue;
      observing.emplace_back(&objective,
                             value_for_schedule(report, objective.plan.schedule.metric));
    }
  }
  const bool among_best = run.selection.judge(plan, report);
  for (const auto& [objective, value] : observing) {
    if (!objective->plateau.observe(value) || !tells) continue;
    const ScheduleOptions& schedule = objective->plan.schedule;
    log(fmt::format(
        "[schedule] no better {} within schedule.patience ({}): × {:.4g} on the learning rate from "
        "update {}{} on",
        schedule.metric, schedule.patience, objective->plateau.scale(), objective->step + 1,
        run.has_several_objectives() ? " of " + objective->spec.name : ""));
  }
  return among_best;
}

void check_can_judge(const Plan& plan, bool has_terms) {
  if (has_terms || !evaluations_decide(plan)) return;
  throw ConfigError(
      "[evaluate] predict returned no terms, and what evaluations measure decides over this run "
      "(checkpoint.best, early_stop or reduce_on_plateau); return the sum of a loss as a term");
}

}  // namespace tanren
