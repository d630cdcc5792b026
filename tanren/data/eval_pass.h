// EvalPass: every sample of a dataset once, in order, in batches. Ranks share it without padding,
// so that no sample counts twice (pytorch#25162). For one thread; where collating takes long, the
// next batches are made on threads of their own meanwhile.
#pragma once

#include "tanren/data/dataset.h"

#include <cstdint>
#include <deque>
#include <future>
#include <optional>

namespace tanren {

class EvalPass {
 public:
  // The dataset must outlive the pass. Rank r of W visits samples [rN/W, (r+1)N/W). At most
  // `workers` batches are made ahead, from the first on that took more than a millisecond.
  EvalPass(const Dataset& dataset, int64_t batch_size, int64_t rank = 0, int64_t world_size = 1,
           int64_t workers = 0);
  // The next samples [begin, end), at most batch_size of them; nothing once all were seen. Batches
  // that lost all their samples to broken files are left out. What collating throws comes out at
  // the batch it belongs to.
  std::optional<Collated> next();

 private:
  std::vector<int64_t> take_indices();
  Collated take();

  const Dataset& dataset_;
  int64_t batch_size_;
  int64_t begin_;  // of the samples that no batch was begun for
  int64_t end_;
  int64_t workers_;
  bool slow_ = false;
  std::deque<std::future<Collated>> ahead_;
};

}  // namespace tanren
