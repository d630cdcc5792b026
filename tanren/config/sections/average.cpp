#include "tanren/base/text.h"
#include "tanren/config/fields.h"
#include "tanren/config/levels.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, AverageOptions& o) {
  add("kind", &o.kind, "Average of the weights, kept in addition to them: none, ema, swa.");
  add("decay", &o.decay, "ema: share of the old average that stays, in [0, 1).");
  add("decay_warmup", &o.decay_warmup,
      "ema: a smaller decay at first, min(decay, (1 + t) / (10 + t)) after t updates.");
  add("every", &o.every, "Steps of the run between updates of the average, ≥ 1.");
  add("start", &o.start, Identity::defines,
      "First step averaged: a whole number of steps, or a share of the run in (0, 1); auto: 0 "
      "(ema), 0.75 (swa).",
      TextKind::number_or_word);
  add("learning_rate", &o.learning_rate, Identity::on_request,
      "swa: constant learning rate from the start of averaging on; 0: the schedule's. It holds for "
      "the first objective; another one gets it × its own peak rate / the first's.");
  add("buffers", &o.buffers,
      "Batch norm's running statistics: average, copy, or estimate from training data; auto: "
      "average (ema), estimate (swa with batch norm).");
  add("estimate_batches", &o.estimate_batches,
      "Training batches of an estimate; 0: one pass over all the data.");
  add("evaluate", &o.evaluate, "Evaluate and export the averaged weights, not the raw ones.");
}

void check_average(Problems& p, const RunConfig& config) {
  const auto& o = config.average;
  p.one_of("average.kind", o.kind, {"none", "ema", "swa"});
  p.check(o.kind == "none" || !has_narrow_weights(config.precision),
          "average.kind \"" + o.kind +
              "\" would average weights of 16 bits, which lose most updates of an average; take "
              "precision.level O1, or no average");
  p.within("average.decay", o.decay, 0, 1, false);
  p.count("average.every", o.every, 1);
  p.not_negative("average.learning_rate", o.learning_rate);
  p.check(o.learning_rate < 1e6, fmt::format("average.learning_rate is {}; it must lie below 1e6",
                                             to_text(o.learning_rate)));
  p.one_of("average.buffers", o.buffers, {"auto", "average", "copy", "estimate"});
  p.count("average.estimate_batches", o.estimate_batches, 0);
  int64_t steps = 0;
  double share = 0;
  const bool fine = o.start == "auto" || (reads_as(o.start, steps) && steps >= 0) ||
                    (reads_as(o.start, share) && share > 0 && share < 1);
  p.check(fine, "average.start is \"" + o.start +
                    "\"; give a number of steps, a share of the run in (0, 1), or \"auto\"");
  p.check(!reads_as(o.start, steps) || !config.run.steps || steps < *config.run.steps,
          "average.start " + o.start + " lies past the run's end; lower it");
  if (o.kind == "none") {
    p.unused("average.",
             {"decay", "decay_warmup", "every", "start", "learning_rate", "buffers",
              "estimate_batches", "evaluate"},
             "average.kind", o.kind);
  }
  if (o.kind == "ema") p.unused("average.", {"learning_rate"}, "average.kind", o.kind);
  if (o.kind == "swa") {
    p.unused("average.", {"decay", "decay_warmup"}, "average.kind", o.kind);
  }
  if (o.buffers == "average" || o.buffers == "copy" || (o.buffers == "auto" && o.kind == "ema")) {
    p.unused("average.", {"estimate_batches"}, "average.buffers", o.buffers);
  }
}

}  // namespace tanren
