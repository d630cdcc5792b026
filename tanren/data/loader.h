// Loader: the stream of global batches. Worker threads claim tickets and collate. Batches are
// handed out in ticket order, so the stream is the same for any number of workers and any prefetch
// depth. The cursor counts *consumed* samples: a batch carries the position after itself. While
// collating is cheaper than handing a batch from thread to thread, it runs on the caller's thread.
// Only one thread at a time may call next().
#pragma once

#include "tanren/base/batch.h"
#include "tanren/data/dataset.h"

#include <memory>

namespace tanren {

struct Cursor {
  int64_t epoch = 0;
  int64_t consumed = 0;  // samples of that epoch
};

struct LoaderOptions {
  int64_t global_batch = 1;
  bool keep_last = true;  // the short last batch of an epoch
  bool shuffle = true;
  uint64_t seed = 0;
  int64_t workers = 1;   // 0: collate on the caller's thread
  int64_t prefetch = 2;  // batches ready ahead
  // The device of the batches. For an accelerator, prefetched batches are copied while the step
  // runs.
  at::Device device = at::kCPU;
  int64_t rank = 0;
  int64_t world_size = 1;
  // The workers start once collating on the caller's thread has cost this many seconds; 0: at once.
  double patience_seconds = 1e-3;
};

class Loader {
 public:
  // The dataset must outlive the loader. Starts at `start`, in O(1); the first batch begins there.
  // DataError if the options give no batch or `start` lies outside the data.
  Loader(const Dataset& dataset, const LoaderOptions& options, Cursor start);
  ~Loader();
  Loader(Loader&&) noexcept;

  // Returns the next global batch, epoch after epoch without end; no batch crosses an epoch.
  // `local` is this rank's share. The count "samples" is global; the other counts are this rank's
  // until ranks sum them. An exception of a worker is thrown here, at the batch that it belongs to.
  GlobalBatch next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tanren
