#include "tanren/data/eval_pass.h"

#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/text.h"
#include "tanren/data/collated.h"
#include "tanren/data/single_thread.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include <ATen/core/grad_mode.h>

namespace tanren {

EvalPass::EvalPass(const Dataset& dataset, int64_t batch_size, int64_t rank, int64_t world_size,
                   int64_t workers)
    : dataset_(dataset),
      batch_size_(batch_size),
      begin_(rank * dataset.size() / world_size),
      end_((rank + 1) * dataset.size() / world_size),
      workers_(workers) {
  if (batch_size < 1) {
    throw DataError(fmt::format(
        "[data] evaluation in batches of {} never ends; set evaluate.batch to 1 or more",
        batch_size));
  }
}

std::vector<int64_t> EvalPass::take_indices() {
  std::vector<int64_t> indices(static_cast<size_t>(std::min(batch_size_, end_ - begin_)));
  std::iota(indices.begin(), indices.end(), begin_);
  begin_ += static_cast<int64_t>(indices.size());
  return indices;
}

Collated EvalPass::take() {
  while (slow_ && begin_ < end_ && static_cast<int64_t>(ahead_.size()) < workers_) {
    ahead_.push_back(std::async(std::launch::async, [&data = dataset_, indices = take_indices()] {
      stay_single_threaded();
      const at::NoGradGuard no_grad;
      const MustSucceedScope must_succeed;
      const MemoryScope memory(MemoryKind::batches);
      return collated(data, indices);
    }));
  }
  if (!ahead_.empty()) {
    auto first = std::move(ahead_.front());
    ahead_.pop_front();
    return first.get();
  }
  constexpr auto kWorthAThread = std::chrono::milliseconds(1);
  const auto start = std::chrono::steady_clock::now();
  const MemoryScope memory(MemoryKind::batches);
  Collated made = collated(dataset_, take_indices());
  slow_ = workers_ > 0 && std::chrono::steady_clock::now() - start > kWorthAThread;
  return made;
}

std::optional<Collated> EvalPass::next() {
  while (begin_ < end_ || !ahead_.empty()) {
    Collated made = take();
    if (made.batch.size() > 0) return made;
  }
  return std::nullopt;
}

}  // namespace tanren
