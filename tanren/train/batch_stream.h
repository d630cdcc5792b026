// BatchStream: the global batches of a run with their counts summed over all ranks. The counts are
// summed one batch ahead, while the step works, because a loss is divided once, by the global
// count, before backward. Every rank's stream starts the same sums in the same order. Used by
// train_loop; custom loops on several ranks may use it too.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/comm/communicator.h"
#include "tanren/data/loader.h"
#include "tanren/parallel/ranks.h"

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>
#include <string>
#include <vector>

namespace tanren {

class BatchStream {
 public:
  // `ranks` must outlive the stream. The loader gives this rank's shares.
  BatchStream(Loader loader, const Ranks& ranks);
  // Waits for the sum under way, so that it does not write into freed memory.
  ~BatchStream();
  BatchStream(const BatchStream&) = delete;
  BatchStream& operator=(const BatchStream&) = delete;

  // Returns the next batch; its counts are those of all ranks. DataError for a count that no rank's
  // first batch had; CommError.
  GlobalBatch next();

 private:
  struct Ahead {
    GlobalBatch batch;
    at::Tensor counts;                  // fp64, in the order of names_, on the CPU
    Communicator::Work sum;             // null if an accelerator sums
    std::optional<c10::Event> arrival;  // when an accelerator's sums are in `counts`
  };
  Ahead start();
  void sum_on_device(Ahead& ahead);
  void agree(const GlobalBatch& first);

  Loader loader_;
  const Ranks& ranks_;
  std::optional<c10::Stream> stream_;              // for the sums of an accelerator
  std::optional<std::vector<std::string>> names_;  // of the counts that are summed
  std::optional<Ahead> ahead_;
};

}  // namespace tanren
