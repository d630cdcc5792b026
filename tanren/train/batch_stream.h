// BatchStream: the global batches of a run with what they count over all ranks, summed one batch ahead,
// while the step works: a loss is divided once, by the global count, before backward. Every rank's
// stream starts the same sums in the same order. Used by train_loop; own loops of several ranks may.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/comm/communicator.h"
#include "tanren/data/loader.h"
#include "tanren/parallel/data_parallel.h"

#include <optional>
#include <string>
#include <vector>

namespace tanren {

class BatchStream {
 public:
  // `parallel` outlives it. The loader gives this rank's shares.
  BatchStream(Loader loader, const DataParallel& parallel);
  // Waits for what is under way, so that nobody sums into memory that is gone.
  ~BatchStream();
  BatchStream(const BatchStream&) = delete;
  BatchStream& operator=(const BatchStream&) = delete;

  // The next batch; counts are those of all ranks. DataError for a count that the first batch of no
  // rank had; CommError.
  GlobalBatch next();

 private:
  struct Ahead {
    GlobalBatch batch;
    at::Tensor counts;  // fp64, in the order of names_
    Communicator::Work sum;
  };
  Ahead start();
  void agree(const GlobalBatch& first);

  Loader loader_;
  const DataParallel& parallel_;
  std::optional<std::vector<std::string>> names_;  // of the counts that are summed
  std::optional<Ahead> ahead_;
};

}  // namespace tanren
