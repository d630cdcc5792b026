// EvalPass: every sample of a dataset once, in order, in batches. Ranks share it without padding,
// so that no sample counts twice (pytorch#25162). For one thread; collates on it.
#pragma once

#include "tanren/data/dataset.h"

#include <cstdint>
#include <optional>

namespace tanren {

class EvalPass {
 public:
  // The dataset must outlive the pass. Rank r of W visits samples [rN/W, (r+1)N/W).
  EvalPass(const Dataset& dataset, int64_t batch_size, int64_t rank = 0, int64_t world_size = 1);
  // The next samples [begin, end), at most batch_size of them; nothing once all were seen.
  std::optional<Collated> next();

 private:
  const Dataset& dataset_;
  int64_t batch_size_;
  int64_t begin_;
  int64_t end_;
};

}  // namespace tanren
