#include "tanren/train/culprit.h"

#include "tanren/comm/exchange.h"

#include <ATen/core/Tensor.h>

namespace tanren {

namespace {

std::string own_culprit(const Objective& objective, const Status& status, const GlobalBatch& batch,
                        const LossMeter& losses) {
  std::string text;
  if (status.bad_microstep >= 0) {
    const auto [first, last] = losses.samples(status.bad_microstep);
    text = "microbatch " + std::to_string(status.bad_microstep);
    text += first == last ? " (no samples: a loss of none must be 0, a sum and no mean)"
                          : " (samples at " + std::to_string(first) + " to " +
                                std::to_string(last - 1) + " of the batch, first sample id " +
                                std::to_string(batch.local.ids[first].item<int64_t>()) + ")";
  }
  const auto index = objective.gradients.first_non_finite();
  if (index >= 0) {
    text += (text.empty() ? "" : ", ") + std::string("first non-finite gradient ") +
            objective.parameters[index].name;
  }
  return text;
}

// The findings of all ranks in one text.
std::string joint_culprit(const std::string& mine, const DataParallel& parallel) {
  if (parallel.alone()) return mine;
  const auto texts = gather_texts(parallel.communicator(), mine);
  std::string all;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty()) continue;
    all += (all.empty() ? "rank " : "; rank ") + std::to_string(rank) + ": " + texts[rank];
  }
  return all;
}

}  // namespace

std::string culprit(const Objective& objective, Cause cause, const Status& status,
                    const GlobalBatch& batch, const LossMeter& losses,
                    const DataParallel& parallel) {
  if (cause == Cause::overflow) return "";
  if (cause == Cause::nothing_counted) {
    return "the batch has 0 " + status.uncounted + " to divide " + status.uncounted_term + " by";
  }
  return joint_culprit(own_culprit(objective, status, batch, losses), parallel);
}

}  // namespace tanren
