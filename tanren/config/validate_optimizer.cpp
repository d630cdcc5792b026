#include "tanren/config/metric_mode.h"
#include "tanren/config/problems.h"

#include "tanren/base/text.h"

#include <algorithm>
#include <map>

namespace tanren {

namespace {

using Keys = std::vector<std::string>;

// Keys that only some kinds read; a kind that is no key here reads none of them.
const std::map<std::string, Keys>& optimizer_keys() {
  static const std::map<std::string, Keys> keys = {
      {"adamw", {"beta1", "beta2", "eps", "amsgrad", "init_from", "state", "fp32_state"}},
      {"adam", {"beta1", "beta2", "eps", "amsgrad", "init_from", "state", "fp32_state"}},
      {"nadam", {"beta1", "beta2", "eps", "decoupled_weight_decay", "momentum_decay"}},
      {"radam", {"beta1", "beta2", "eps", "decoupled_weight_decay"}},
      {"adagrad", {"eps", "learning_rate_decay", "initial_accumulator"}},
      {"rmsprop", {"eps", "alpha", "centered", "momentum"}},
      {"adafactor", {"beta2_decay", "clip_threshold", "scale_floor", "relative_step"}},
      {"lion", {"beta1", "beta2"}},
      {"muon",
       {"beta1", "beta2", "eps", "momentum", "nesterov", "newton_schulz_steps",
        "adjust_learning_rate", "adamw_parameters"}},
      {"sgd", {"momentum", "dampening", "nesterov", "init_from"}},
  };
  return keys;
}

const std::map<std::string, Keys>& schedule_keys() {
  static const std::map<std::string, Keys> keys = {
      {"constant", {"warmup_steps"}},
      {"linear", {"warmup_steps", "final_fraction"}},
      {"cosine", {"warmup_steps", "final_fraction"}},
      {"cosine_with_restarts", {"warmup_steps", "final_fraction", "cycles", "cycle_growth"}},
      {"polynomial", {"warmup_steps", "final_fraction", "power"}},
      {"inverse_sqrt", {"warmup_steps", "timescale"}},
      {"step", {"warmup_steps", "step_size", "factor"}},
      {"multi_step", {"warmup_steps", "milestones", "factor"}},
      {"one_cycle", {"warmup_fraction", "div_factor", "final_div_factor", "shape"}},
      {"warmup_stable_decay", {"warmup_steps", "final_fraction", "shape", "decay_steps"}},
      {"reduce_on_plateau",
       {"warmup_steps", "final_fraction", "factor", "metric", "mode", "patience", "threshold",
        "threshold_mode", "cooldown"}},
  };
  return keys;
}

// The kind is known, and no key is changed that it does not read.
void check_kind(Problems& p, const std::string& section, const std::string& kind,
                const std::map<std::string, Keys>& known, const std::set<std::string>& changed) {
  Keys kinds, unread;
  for (const auto& [name, keys] : known) kinds.push_back(name);
  p.one_of(section + "kind", kind, kinds);
  const auto own = known.find(kind);
  if (own == known.end()) return;
  for (const auto& [name, keys] : known) {
    for (const auto& key : keys) {
      const auto in = [&](const Keys& list) {
        return std::find(list.begin(), list.end(), key) != list.end();
      };
      if (!in(own->second) && !in(unread)) unread.push_back(key);
    }
  }
  p.unused(changed, section, unread, section + "kind", kind);
}

void check_values(Problems& p, const OptimizerOptions& asked) {
  const OptimizerOptions o = with_defaults(asked);
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
  p.check(o.kind == "muon" || !*o.nesterov || (*o.momentum > 0 && o.dampening == 0),
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
  if (o.kind != "reduce_on_plateau") return;
  p.check(!config.data.eval.kind.empty(),
          "schedule.kind \"reduce_on_plateau\" reads evaluations and there is no [data.eval]; add "
          "it, or take another kind");
  p.check(config.evaluate.every > 0,
          "schedule.kind \"reduce_on_plateau\" reads evaluations and evaluate.every is 0 (only at "
          "the end); set it");
  p.one_of("schedule.metric", o.metric, measured_values(config.evaluate));
  p.check(lower_is_better(o.metric, o.mode).has_value(),
          "schedule.mode \"auto\" does not know whether a low " + o.metric +
              " is good; set it to min or max");
}

void check_schedule(Problems& p, const RunConfig& config) {
  const ScheduleOptions& o = config.schedule;
  p.count("schedule.warmup_steps", o.warmup_steps, 0);
  p.within("schedule.final_fraction", o.final_fraction, 0, 1, true);
  p.count("schedule.cycles", o.cycles, 1);
  p.within("schedule.cycle_growth", o.cycle_growth, 1, 1000, true);
  p.positive("schedule.power", o.power);
  p.count("schedule.timescale", o.timescale, 0);
  p.count("schedule.step_size", o.step_size, o.kind == "step" ? 1 : 0);
  p.check(o.kind != "multi_step" || !o.milestones.empty(),
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
  if (o.kind == "one_cycle") {
    p.one_of("schedule.shape", o.shape, {"cosine", "linear"});
  } else {
    p.one_of("schedule.shape", o.shape, {"cosine", "linear", "1-sqrt"});
  }
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
  check_kind(p, "optimizer.", config.optimizer.kind, optimizer_keys(), changed);
  check_values(p, config.optimizer);
  check_kind(p, "schedule.", config.schedule.kind, schedule_keys(), changed);
  check_schedule(p, config);
  p.not_negative("clip.norm", config.clip.norm);
  p.not_negative("clip.value", config.clip.value);
}

}  // namespace tanren
