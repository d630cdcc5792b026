// EvalPass: returns every sample of a dataset once, in order, in batches. Ranks share the samples
// without padding, so that no sample counts twice (pytorch#25162). Only one thread may use a pass.
// If collating is slow, helper threads make the next batches ahead.
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
  // `workers` batches are made ahead, starting after the first batch that took more than a
  // millisecond.
  EvalPass(const Dataset& dataset, int64_t batch_size, int64_t rank = 0, int64_t world_size = 1,
           int64_t workers = 0);
  // Returns the next samples, at most batch_size of them; nullopt after the last. Batches that lost
  // all their samples to broken files are left out. An exception of collate is thrown here, at the
  // batch that it belongs to.
  std::optional<Collated> next();

 private:
  std::vector<int64_t> take_indices();
  Collated take();

  const Dataset& dataset_;
  int64_t batch_size_;
  int64_t begin_;  // first sample of this rank that is in no batch yet
  int64_t end_;
  int64_t workers_;
  bool slow_ = false;
  std::deque<std::future<Collated>> ahead_;
};

}  // namespace tanren
