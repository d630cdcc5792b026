#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/plan/passes.h"

#include <algorithm>

namespace tanren {

namespace {

// "30 = 1 rank × 30"; "30 over 4 ranks, 7 or 8 each". `rank`: the word for who has a share.
std::string shares(const BatchPlan& batch, const std::string& rank) {
  const int64_t ranks = batch.world_size, least = batch.global_batch / ranks;
  const std::string all = to_text(batch.global_batch);
  if (least == batch.per_rank) {
    return fmt::format("{} = {} {}{} × {}", all, to_text(ranks), rank, ranks == 1 ? "" : "s",
                       to_text(least));
  }
  if (least > 0) {
    return fmt::format("{} over {} {}s, {} or {} each", all, to_text(ranks), rank, to_text(least),
                       to_text(batch.per_rank));
  }
  return fmt::format("{} over {} {}s: {} of them get no sample of it", all, to_text(ranks), rank,
                     to_text(ranks - batch.global_batch));
}

// "30 = 1 rank × 30; 30 = 4 microsteps × 7 + 1 × 2"
std::string arithmetic(const BatchPlan& batch, const std::string& rank) {
  std::string text = fmt::format("{}; {} = ", shares(batch, rank), to_text(batch.per_rank));
  const bool uneven = batch.last_microbatch != batch.microbatch;
  const int64_t full = batch.accumulation_steps - (uneven ? 1 : 0);
  text +=
      to_text(full) + (full == 1 ? " microstep × " : " microsteps × ") + to_text(batch.microbatch);
  if (uneven) text += fmt::format(" + 1 × {}", to_text(batch.last_microbatch));
  return text;
}

// Microbatches in a window for each stage, if the config leaves them open. With four the stages
// wait for about a fifth of the time: (S - 1) / (4 S + S - 1).
constexpr int64_t kMicrobatchesPerStage = 4;

// The microbatch if the config leaves it open.
int64_t open_microbatch(const Request& request, const Plan& plan) {
  const int64_t per_rank = plan.batch.per_rank, stages = plan.parallel.pipeline;
  // A smaller microbatch would change which samples batch norm sees together.
  if (stages == 1 || request.profile.couples_samples) return per_rank;
  const int64_t wanted = std::min(kMicrobatchesPerStage * stages, per_rank);
  return (per_rank + wanted - 1) / wanted;
}

// A clause on what the split means for stages; empty if it means nothing or there are no stages.
std::string of_stages(const Request& request, const Plan& plan, bool asked) {
  const int64_t stages = plan.parallel.pipeline;
  if (stages == 1) return "";
  const int64_t microbatches = plan.batch.accumulation_steps;
  if (request.profile.couples_samples && !asked) {
    return "; it stays whole for batch norm, so the stages work one after the other: "
           "batch.microbatch splits it, which batch norm sees";
  }
  if (microbatches >= stages || asked) return "";
  return fmt::format("; {} stages want more: a larger batch.global_batch", to_text(stages));
}

}  // namespace

void plan_batch(const Request& request, Plan& plan) {
  const auto& config = request.config;
  const int64_t samples = request.profile.train_samples;
  if (samples < 1) {
    throw ConfigError("[plan] data.train has no samples; check its file or data.train.samples");
  }
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
            fmt::format("[plan] batch.global_batch {} is more than the {} samples and data.last is "
                        "\"drop\": no update is left; lower it or keep the last",
                        to_text(batch.global_batch), to_text(samples)));
      }
      batch.global_batch = samples;
      source = Source::planned;
      reason = "no more samples than that in an epoch; ";
    }
  }
  // Rank r takes samples [r B / W, (r + 1) B / W): this is the largest share.
  batch.per_rank = (batch.global_batch + batch.world_size - 1) / batch.world_size;
  const bool asked = config.batch.microbatch > 0 && config.batch.microbatch <= batch.per_rank;
  const bool too_large = config.batch.microbatch > batch.per_rank;
  batch.microbatch = asked       ? config.batch.microbatch
                     : too_large ? batch.per_rank
                                 : open_microbatch(request, plan);
  batch.accumulation_steps = (batch.per_rank + batch.microbatch - 1) / batch.microbatch;
  batch.last_microbatch = batch.per_rank - (batch.accumulation_steps - 1) * batch.microbatch;
  batch.steps_per_epoch = batch.keep_last ? (samples + batch.global_batch - 1) / batch.global_batch
                                          : samples / batch.global_batch;
  const bool in_stages = plan.parallel.pipeline > 1;
  plan.lines.push_back({"global_batch", to_text(batch.global_batch), source,
                        reason + arithmetic(batch, in_stages ? "replica" : "rank")});

  std::string why = batch.accumulation_steps > 1
                        ? fmt::format(
                              "{} microsteps accumulate; losses are summed and divided once by the "
                              "global count, so the update equals the whole batch's",
                              to_text(batch.accumulation_steps))
                        : "a rank's whole share at once";
  const bool opened = !asked && !too_large && in_stages;
  if (too_large) why += fmt::format("; {} is more than there is", to_text(config.batch.microbatch));
  if (request.profile.couples_samples && batch.accumulation_steps > 1) {
    why = fmt::format(
        "{} microsteps accumulate; batch norm couples the samples of a microbatch, so the numbers "
        "equal the whole batch's only at the same split (norm = \"group\" has no such limit)",
        to_text(batch.accumulation_steps));
    if (plan.parallel.buffers == RankBuffers::synchronised) {
      why = fmt::format(
          "{} microsteps accumulate, on every rank as many; batch norm couples the samples that "
          "all ranks have in one",
          to_text(batch.accumulation_steps));
    }
  }
  if (opened && !request.profile.couples_samples) {
    why = fmt::format("{} for {} stages; ", to_text(batch.accumulation_steps),
                      to_text(plan.parallel.pipeline)) +
          why;
  }
  why += of_stages(request, plan, !opened);
  const bool is_split = batch.accumulation_steps > 1 || batch.world_size > 1;
  if (!request.profile.torch_dropout.empty() && is_split) {
    why += "; but " + request.profile.torch_dropout +
           " is torch's dropout, which draws in the order of calls: with it they are equal in the "
           "mean "
           "only (tanren::dropout draws by sample)";
  }
  plan.lines.push_back({"microbatch", to_text(batch.microbatch),
                        too_large ? Source::planned
                        : opened  ? Source::planned
                        : asked   ? Source::asked
                                  : request.source("batch.microbatch"),
                        why});
  const int64_t short_batch = samples % batch.global_batch;
  plan.lines.push_back(
      {"steps_per_epoch", to_text(batch.steps_per_epoch), Source::planned,
       fmt::format("{} samples; {}", to_text(samples),
                   short_batch == 0  ? std::string("they divide evenly")
                   : batch.keep_last ? fmt::format("the last update has {}", to_text(short_batch))
                                     : fmt::format("the last {} of each epoch's order are dropped",
                                                   to_text(short_batch)))});
}

}  // namespace tanren
