#include "tanren/plan/planner.h"

#include "tanren/base/text.h"
#include "tanren/plan/passes.h"

namespace tanren {

Plan make_plan(const RunConfig& config, const Machine& machine, const ModelProfile& profile) {
  Plan plan;
  plan.run = config.run;
  plan.model = config.model;
  plan.data = config.data;
  plan.optimizer = config.optimizer;
  plan.schedule = config.schedule;
  plan.clip = config.clip;
  plan.guard = config.guard;
  plan.evaluate = config.evaluate;
  plan.checkpoint = config.checkpoint;
  plan.metrics = config.metrics;
  const Request request{config, machine, profile};
  plan.lines.push_back({"model", config.model.kind, Source::asked,
                        to_text(profile.num_trainable) + " of " + to_text(profile.num_parameters) +
                            " parameters are trained"});
  plan_device(request, plan);
  plan_batch(request, plan);
  plan_length(request, plan);
  plan_precision(request, plan);
  plan_determinism(request, plan);
  return plan;
}

}  // namespace tanren
