#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/plan/passes.h"

#include <algorithm>

namespace tanren {

namespace {

// "30 = 1 rank × 30; 30 = 4 microsteps × 7 + 1 × 2"
std::string arithmetic(const BatchPlan& batch) {
  std::string text = to_text(batch.global_batch) + " = " + to_text(batch.world_size) +
                     (batch.world_size == 1 ? " rank × " : " ranks × ") + to_text(batch.per_rank) +
                     "; " + to_text(batch.per_rank) + " = ";
  const bool uneven = batch.last_microbatch != batch.microbatch;
  const int64_t full = batch.accumulation_steps - (uneven ? 1 : 0);
  text +=
      to_text(full) + (full == 1 ? " microstep × " : " microsteps × ") + to_text(batch.microbatch);
  if (uneven) text += " + 1 × " + to_text(batch.last_microbatch);
  return text;
}

}  // namespace

void plan_batch(const Request& request, Plan& plan) {
  const auto& config = request.config;
  const int64_t samples = request.profile.train_samples;
  auto& batch = plan.batch;
  batch.keep_last = config.data.last == "keep";
  std::string reason;
  Source source = request.source("batch.global_batch");
  if (config.batch.global_batch == "epoch") {
    batch.global_batch = samples;
    reason = "the whole epoch in one update; ";
  } else {
    batch.global_batch = std::stoll(config.batch.global_batch);
    if (batch.global_batch > samples) {
      if (!batch.keep_last) {
        throw ConfigError(
            "[plan] batch.global_batch " + to_text(batch.global_batch) + " is more than the " +
            to_text(samples) +
            " samples and data.last is \"drop\": no update is left; lower it or keep the last");
      }
      batch.global_batch = samples;
      source = Source::planned;
      reason = "no more samples than that in an epoch; ";
    }
  }
  batch.per_rank = batch.global_batch / batch.world_size;
  const bool asked = config.batch.microbatch > 0 && config.batch.microbatch < batch.per_rank;
  batch.microbatch = asked ? config.batch.microbatch : batch.per_rank;
  batch.accumulation_steps = (batch.per_rank + batch.microbatch - 1) / batch.microbatch;
  batch.last_microbatch = batch.per_rank - (batch.accumulation_steps - 1) * batch.microbatch;
  batch.steps_per_epoch = batch.keep_last ? (samples + batch.global_batch - 1) / batch.global_batch
                                          : samples / batch.global_batch;
  plan.lines.push_back(
      {"global_batch", to_text(batch.global_batch), source, reason + arithmetic(batch)});

  std::string why =
      batch.accumulation_steps > 1
          ? to_text(batch.accumulation_steps) +
                " microsteps accumulate; losses are summed and divided once by the global "
                "count, so the update equals the whole batch's"
          : "a rank's whole share at once";
  if (request.profile.couples_samples && batch.accumulation_steps > 1) {
    why = to_text(batch.accumulation_steps) +
          " microsteps accumulate; batch norm couples the samples of a microbatch, so the numbers "
          "equal the whole batch's only at the same split (norm = \"group\" has no such limit)";
  }
  plan.lines.push_back({"microbatch", to_text(batch.microbatch),
                        asked ? Source::asked : request.source("batch.microbatch"), why});
  const int64_t short_batch = samples % batch.global_batch;
  plan.lines.push_back({"steps_per_epoch", to_text(batch.steps_per_epoch), Source::planned,
                        to_text(samples) + " samples; " +
                            (short_batch == 0  ? std::string("they divide evenly")
                             : batch.keep_last ? "the last update has " + to_text(short_batch)
                                               : "the last " + to_text(short_batch) +
                                                     " of each epoch's order are dropped")});
}

void plan_length(const Request& request, Plan& plan) {
  const auto& run = request.config.run;
  plan.length.steps = run.steps;
  plan.length.epochs = run.epochs;
  plan.length.total_steps =
      run.steps ? *run.steps : run.epochs.value_or(1) * plan.batch.steps_per_epoch;
  plan.lines.push_back({"total_steps", to_text(plan.length.total_steps),
                        run.steps ? Source::asked : Source::planned,
                        run.steps ? "applied updates"
                                  : to_text(run.epochs.value_or(1)) + " epochs × " +
                                        to_text(plan.batch.steps_per_epoch) +
                                        " batches; a skipped update uses up its batch"});
  if (request.config.schedule.warmup_steps >= plan.length.total_steps) {
    plan.lines.push_back({"warmup_steps", to_text(request.config.schedule.warmup_steps),
                          Source::asked, "the run ends before its warm-up does"});
  }
}

}  // namespace tanren
