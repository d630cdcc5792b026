#include "tanren/train/culprit.h"

#include "tanren/base/text.h"
#include "tanren/comm/exchange.h"

#include <ATen/core/Tensor.h>

namespace tanren {

namespace {

std::string own_culprit(const Objective& objective, const Status& status, const GlobalBatch& batch,
                        const LossMeter& losses) {
  std::string text;
  if (status.bad_microstep >= 0) {
    const auto [first, last] = losses.samples(status.bad_microstep);
    text = fmt::format("microbatch {}", status.bad_microstep);
    text += first == last ? " (no samples: a loss of none must be 0, a sum and no mean)"
                          : fmt::format(" (samples at {} to {} of the batch, first sample id {})",
                                        first, last - 1, batch.local.ids[first].item<int64_t>());
  }
  const auto index = objective.gradients.first_non_finite();
  if (index >= 0) {
    text += (text.empty() ? "" : ", ") + std::string("first non-finite gradient ") +
            objective.parameters[index].name;
  }
  return text;
}

// The findings of all ranks in one text.
std::string joint_culprit(const std::string& mine, const Ranks& ranks) {
  if (ranks.world().alone()) return mine;
  const auto texts = gather_texts(ranks.world().communicator(), mine);
  std::string all;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty()) continue;
    all += fmt::format("{}{}: {}", all.empty() ? "rank " : "; rank ", rank, texts[rank]);
  }
  return all;
}

}  // namespace

std::string culprit(const Objective& objective, Cause cause, const Status& status,
                    const GlobalBatch& batch, const LossMeter& losses, const Ranks& ranks) {
  if (cause == Cause::overflow) return "";
  if (cause == Cause::nothing_counted) {
    return "the batch has 0 " + status.uncounted + " to divide " + status.uncounted_term + " by";
  }
  return joint_culprit(own_culprit(objective, status, batch, losses), ranks);
}

}  // namespace tanren
