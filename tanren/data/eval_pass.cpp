#include "tanren/data/eval_pass.h"

#include "tanren/base/error.h"

#include <algorithm>
#include <numeric>

namespace tanren {

EvalPass::EvalPass(const Dataset& dataset, int64_t batch_size, int64_t rank, int64_t world_size)
    : dataset_(dataset),
      batch_size_(batch_size),
      begin_(rank * dataset.size() / world_size),
      end_((rank + 1) * dataset.size() / world_size) {
  if (batch_size < 1) {
    throw DataError("[data] evaluation in batches of " + std::to_string(batch_size) +
                    " never ends; set evaluate.batch to 1 or more");
  }
}

std::optional<Collated> EvalPass::next() {
  while (begin_ < end_) {
    std::vector<int64_t> indices(static_cast<size_t>(std::min(batch_size_, end_ - begin_)));
    std::iota(indices.begin(), indices.end(), begin_);
    begin_ += static_cast<int64_t>(indices.size());
    Collated collated = dataset_.collate(indices);
    if (collated.batch.size() > 0) return collated;  // else all its files were broken
  }
  return std::nullopt;
}

}  // namespace tanren
