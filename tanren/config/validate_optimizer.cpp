#include "tanren/config/problems.h"

#include "tanren/base/text.h"

namespace tanren {

void check_optimizer(Problems& p, const RunConfig& config, const std::set<std::string>& changed) {
  const OptimizerOptions& o = config.optimizer;
  p.one_of("optimizer.kind", o.kind, {"adamw", "sgd"});
  p.check(o.learning_rate > 0 && o.learning_rate < 1e6, "optimizer.learning_rate is " +
                                                            to_text(o.learning_rate) +
                                                            "; it must be positive and below 1e6");
  p.not_negative("optimizer.weight_decay", o.weight_decay);
  p.within("optimizer.beta1", o.beta1, 0, 1, false);
  p.within("optimizer.beta2", o.beta2, 0, 1, false);
  p.positive("optimizer.eps", o.eps);
  p.within("optimizer.momentum", o.momentum, 0, 1, false);
  p.within("optimizer.dampening", o.dampening, 0, 1, true);
  p.check(!o.nesterov || (o.momentum > 0 && o.dampening == 0),
          "optimizer.nesterov needs a momentum and no dampening");
  if (o.kind == "sgd") {
    p.unused(changed, "optimizer.", {"beta1", "beta2", "eps"}, "optimizer.kind", o.kind);
  }
  if (o.kind == "adamw") {
    p.unused(changed, "optimizer.", {"momentum", "dampening", "nesterov"}, "optimizer.kind",
             o.kind);
  }
  for (size_t i = 0; i < o.groups.size(); ++i) {
    const auto& group = o.groups[i];
    const std::string name = "optimizer.groups[" + std::to_string(i) + "]";
    p.check(!group.parameters.empty(), name + " has no parameters; give it patterns");
    p.not_negative(name + ".learning_rate_scale", group.learning_rate_scale.value_or(0));
    p.not_negative(name + ".weight_decay", group.weight_decay.value_or(0));
  }
  p.one_of("schedule.kind", config.schedule.kind, {"constant", "linear", "cosine"});
  p.count("schedule.warmup_steps", config.schedule.warmup_steps, 0);
  p.within("schedule.final_fraction", config.schedule.final_fraction, 0, 1, true);
  p.not_negative("clip.norm", config.clip.norm);
}

}  // namespace tanren
