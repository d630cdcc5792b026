#include "tanren/config/metric_mode.h"
#include "tanren/config/problems.h"

#include "tanren/base/text.h"
#include "tanren/config/kinds.h"

#include <algorithm>

namespace tanren {

namespace {

// Checks that the kind is known, and that no changed key is one that the kind does not read.
template <typename Kind>
void check_kind(Problems& p, const std::string& section, const std::string& name,
                const std::vector<Kind>& kinds, const std::set<std::string>& changed) {
  p.one_of(section + "kind", name, names_of(kinds));
  if (const Kind* kind = find_kind(kinds, name)) {
    p.unused(changed, section, unread_keys(kinds, *kind), section + "kind", name);
  }
}

void check_values(Problems& p, const OptimizerOptions& asked) {
  const OptimizerOptions o = with_defaults(asked);
  const OptimizerKind* kind = optimizer_kind(o.kind);
  p.check(o.learning_rate > 0 && o.learning_rate < 1e6, "optimizer.learning_rate is " +
                                                            to_text(o.learning_rate) +
                                                            "; it must be positive and below 1e6");
  p.not_negative("optimizer.weight_decay", *o.weight_decay);
  p.within("optimizer.beta1", o.beta1, 0, 1, false);
  p.within("optimizer.beta2", *o.beta2, 0, 1, false);
  p.positive("optimizer.eps", *o.eps);
  p.within("optimizer.momentum", *o.momentum, 0, 1, false);
  p.one_of("optimizer.state", o.state, {"fp32", "bf16", "8bit"});
  p.check(o.state == "fp32" || !o.amsgrad,
          "optimizer.amsgrad keeps a third moment, which optimizer.state = \"" + o.state +
              "\" has no place for; drop one of them");
  p.within("optimizer.dampening", o.dampening, 0, 1, true);
  p.check(
      (kind != nullptr && kind->nesterov) || !*o.nesterov || (*o.momentum > 0 && o.dampening == 0),
      "optimizer.nesterov needs a momentum and no dampening");
  p.check(o.layer_decay > 0 && o.layer_decay <= 1,
          "optimizer.layer_decay is " + to_text(o.layer_decay) + "; it must lie in (0, 1]");
  p.check(o.layers.empty() || o.layer_decay != 1,
          "optimizer.layers does nothing while optimizer.layer_decay is 1; lower that or drop it");
  p.not_negative("optimizer.momentum_decay", o.momentum_decay);
  p.within("optimizer.alpha", o.alpha, 0, 1, false);
  p.not_negative("optimizer.learning_rate_decay", o.learning_rate_decay);
  p.not_negative("optimizer.initial_accumulator", o.initial_accumulator);
  p.within("optimizer.beta2_decay", o.beta2_decay, -100, 0, true);
  p.within("optimizer.clip_threshold", o.clip_threshold, 1, 1e38, true);
  p.not_negative("optimizer.scale_floor", o.scale_floor);
  p.within("optimizer.newton_schulz_steps", static_cast<double>(o.newton_schulz_steps), 1, 99,
           true);
  p.one_of("optimizer.adjust_learning_rate", o.adjust_learning_rate,
           {"match_rms_adamw", "original"});
  for (size_t i = 0; i < o.groups.size(); ++i) {
    const auto& group = o.groups[i];
    const std::string name = "optimizer.groups[" + std::to_string(i) + "]";
    p.check(!group.parameters.empty(), name + " has no parameters; give it patterns");
    p.not_negative(name + ".learning_rate_scale", group.learning_rate_scale.value_or(0));
    p.not_negative(name + ".weight_decay", group.weight_decay.value_or(0));
  }
}

void check_plateau(Problems& p, const RunConfig& config) {
  const ScheduleOptions& o = config.schedule;
  p.one_of("schedule.mode", o.mode, {"auto", "min", "max"});
  p.one_of("schedule.threshold_mode", o.threshold_mode, {"rel", "abs"});
  p.count("schedule.patience", o.patience, 0);
  p.count("schedule.cooldown", o.cooldown, 0);
  p.not_negative("schedule.threshold", o.threshold);
  if (!reads_evaluations(o)) return;
  const std::string kind = "schedule.kind \"" + o.kind + "\"";
  p.check(!config.data.eval.kind.empty(), kind +
                                              " reads evaluations and there is no [data.eval]; add "
                                              "it, or take another kind");
  p.check(config.evaluate.every > 0, kind +
                                         " reads evaluations and evaluate.every is 0 (only at "
                                         "the end); set it");
  p.one_of("schedule.metric", o.metric, measured_values(config.evaluate));
  p.check(lower_is_better(o.metric, o.mode).has_value(),
          "schedule.mode \"auto\" does not know whether a low " + o.metric +
              " is good; set it to min or max");
}

void check_schedule(Problems& p, const RunConfig& config) {
  static const ScheduleKind any;
  const ScheduleOptions& o = config.schedule;
  const ScheduleKind* found = schedule_kind(o.kind);
  const ScheduleKind& kind = found == nullptr ? any : *found;
  p.count("schedule.warmup_steps", o.warmup_steps, 0);
  p.within("schedule.final_fraction", o.final_fraction, 0, 1, true);
  p.count("schedule.cycles", o.cycles, 1);
  p.within("schedule.cycle_growth", o.cycle_growth, 1, 1000, true);
  p.positive("schedule.power", o.power);
  p.count("schedule.timescale", o.timescale, 0);
  p.count("schedule.step_size", o.step_size, reads(kind, "step_size") ? 1 : 0);
  p.check(!reads(kind, "milestones") || !o.milestones.empty(),
          "schedule.milestones is empty; name the updates before each reduction");
  for (size_t i = 0; i < o.milestones.size(); ++i) {
    p.count("schedule.milestones", o.milestones[i], 1);
    p.check(i == 0 || o.milestones[i] > o.milestones[i - 1],
            "schedule.milestones has " + to_text(o.milestones[i]) + " after " +
                to_text(o.milestones[i > 0 ? i - 1 : 0]) + "; they must rise");
  }
  p.check(o.factor > 0 && o.factor < 1,
          "schedule.factor is " + to_text(o.factor) + "; it must lie in (0, 1)");
  p.check(o.warmup_fraction > 0 && o.warmup_fraction < 1,
          "schedule.warmup_fraction is " + to_text(o.warmup_fraction) + "; it must lie in (0, 1)");
  p.within("schedule.div_factor", o.div_factor, 1, 1e12, true);
  p.within("schedule.final_div_factor", o.final_div_factor, 1, 1e12, true);
  p.one_of("schedule.shape", o.shape, kind.shapes);
  p.count("schedule.decay_steps", o.decay_steps, 0);
  check_plateau(p, config);
}

}  // namespace

void check_optimizer(Problems& p, const RunConfig& config, const std::set<std::string>& changed) {
  p.check(config.optimizer.state == "fp32" || config.precision.mode != "fp64",
          "optimizer.state \"" + config.optimizer.state +
              "\" rounds what precision.mode \"fp64\" keeps exact; drop one of them");
  if (config.optimizer.state == "fp32") {
    p.unused(changed, "optimizer.", {"fp32_state"}, "optimizer.state", "fp32");
  }
  check_kind(p, "optimizer.", config.optimizer.kind, optimizer_kinds(), changed);
  check_values(p, config.optimizer);
  check_kind(p, "schedule.", config.schedule.kind, schedule_kinds(), changed);
  check_schedule(p, config);
  p.not_negative("clip.norm", config.clip.norm);
  p.not_negative("clip.value", config.clip.value);
}

}  // namespace tanren
