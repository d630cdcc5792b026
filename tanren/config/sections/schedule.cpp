#include "tanren/base/text.h"
#include "tanren/config/fields.h"
#include "tanren/config/kinds.h"
#include "tanren/config/metric_mode.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, ScheduleOptions& o) {
  add("kind", &o.kind, Identity::on_request,
      "constant, linear, cosine, cosine_with_restarts, polynomial, inverse_sqrt, step, multi_step, "
      "one_cycle, warmup_stable_decay, reduce_on_plateau.");
  add("warmup_steps", &o.warmup_steps, Identity::on_request,
      "Updates over which the rate rises linearly to its peak, ≥ 0; every kind but one_cycle.");
  add("final_fraction", &o.final_fraction, Identity::on_request,
      "linear, cosine, cosine_with_restarts, polynomial, warmup_stable_decay: rate at the end, as "
      "a share of the peak, in [0, 1]; reduce_on_plateau: the lowest such share.");
  add("cycles", &o.cycles, Identity::on_request, "cosine_with_restarts: number of cycles, ≥ 1.");
  add("cycle_growth", &o.cycle_growth, Identity::on_request,
      "cosine_with_restarts: length of a cycle / length of the previous one, in [1, 1000].");
  add("power", &o.power, Identity::on_request, "polynomial: exponent, > 0.");
  add("timescale", &o.timescale, Identity::on_request,
      "inverse_sqrt: updates after which the rate is peak / √2; 0: warmup_steps, or 10000 "
      "without.");
  add("step_size", &o.step_size, Identity::on_request,
      "step: updates after the warm-up between two reductions, ≥ 1.");
  add("milestones", &o.milestones, Identity::on_request,
      "multi_step: applied updates before each reduction, rising, the warm-up included.");
  add("factor", &o.factor, Identity::on_request,
      "step, multi_step, reduce_on_plateau: factor of a reduction, in (0, 1).");
  add("warmup_fraction", &o.warmup_fraction, Identity::on_request,
      "one_cycle: share of the run in which the rate rises, in (0, 1).");
  add("div_factor", &o.div_factor, Identity::on_request, "one_cycle: peak over first rate, ≥ 1.");
  add("final_div_factor", &o.final_div_factor, Identity::on_request,
      "one_cycle: first rate over last rate, ≥ 1.");
  add("shape", &o.shape, Identity::on_request,
      "one_cycle, warmup_stable_decay: cosine, linear; the latter also 1-sqrt.");
  add("decay_steps", &o.decay_steps, Identity::on_request,
      "warmup_stable_decay: updates of the decay at the end; 0: a tenth of the run.");
  add("metric", &o.metric, Identity::on_request,
      "reduce_on_plateau: loss, or one of evaluate.metrics.");
  add("mode", &o.mode, Identity::on_request,
      "reduce_on_plateau: min, max; auto: min for losses and errors, max for scores.");
  add("patience", &o.patience, Identity::on_request,
      "reduce_on_plateau: evaluations without improvement that do not yet reduce the rate, ≥ 0.");
  add("threshold", &o.threshold, Identity::on_request,
      "reduce_on_plateau: least improvement that counts, ≥ 0.");
  add("threshold_mode", &o.threshold_mode, Identity::on_request,
      "reduce_on_plateau: rel (of the best value), abs.");
  add("cooldown", &o.cooldown, Identity::on_request,
      "reduce_on_plateau: evaluations after a reduction that do not count for patience, ≥ 0.");
}

namespace {

void check_plateau(Problems& p, const RunConfig& config) {
  const ScheduleOptions& o = config.schedule;
  p.one_of("schedule.mode", o.mode, {"auto", "min", "max"});
  p.one_of("schedule.threshold_mode", o.threshold_mode, {"rel", "abs"});
  p.count("schedule.patience", o.patience, 0);
  p.count("schedule.cooldown", o.cooldown, 0);
  p.not_negative("schedule.threshold", o.threshold);
  if (!reads_evaluations(o)) return;
  const std::string kind = "schedule.kind \"" + o.kind + "\"";
  p.check(has_evaluation(config.data), kind +
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

}  // namespace

void check_schedule(Problems& p, const RunConfig& config) {
  static const ScheduleKind any;
  const ScheduleOptions& o = config.schedule;
  p.one_of("schedule.kind", o.kind, names_of(schedule_kinds()));
  const ScheduleKind* found = schedule_kind(o.kind);
  const ScheduleKind& kind = found == nullptr ? any : *found;
  if (found != nullptr) {
    p.unused("schedule.", unread_keys(schedule_kinds(), kind), "schedule.kind", o.kind);
  }
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
            fmt::format("schedule.milestones has {} after {}; they must rise",
                        to_text(o.milestones[i]), to_text(o.milestones[i > 0 ? i - 1 : 0])));
  }
  p.check(o.factor > 0 && o.factor < 1,
          fmt::format("schedule.factor is {}; it must lie in (0, 1)", to_text(o.factor)));
  p.check(o.warmup_fraction > 0 && o.warmup_fraction < 1,
          fmt::format("schedule.warmup_fraction is {}; it must lie in (0, 1)",
                      to_text(o.warmup_fraction)));
  p.within("schedule.div_factor", o.div_factor, 1, 1e12, true);
  p.within("schedule.final_div_factor", o.final_div_factor, 1, 1e12, true);
  p.one_of("schedule.shape", o.shape, kind.shapes);
  p.count("schedule.decay_steps", o.decay_steps, 0);
  check_plateau(p, config);
}

}  // namespace tanren
