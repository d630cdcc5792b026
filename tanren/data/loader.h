// Loader: the stream of global batches. Worker threads claim tickets, collate, and the batches come
// out in ticket order, so the stream is the same for any number of workers and any prefetch depth.
// The cursor counts what was *consumed*: a batch carries the position after itself. While collating
// is cheaper than handing a batch from thread to thread, it happens on the caller's.
// next() is for one thread; everything else is inside.
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
  // Where batches come out. On an accelerator those ahead are copied while the step works.
  at::Device device = at::kCPU;
  int64_t rank = 0;
  int64_t world_size = 1;
  // The workers start once collating on the caller's thread has cost it so much; 0: at once.
  double patience_seconds = 1e-3;
};

class Loader {
 public:
  // The dataset must outlive the loader. Starts at `start`, in O(1); batches are cut from there on.
  // DataError where the options give no batch or `start` lies outside the data.
  Loader(const Dataset& dataset, const LoaderOptions& options, Cursor start);
  ~Loader();
  Loader(Loader&&) noexcept;

  // The next global batch, endlessly over the epochs; batches never cross an epoch. `local` is this
  // rank's share; of the counts, "samples" is global, others are this rank's until ranks sum them.
  // An exception of a worker comes out here, at the batch it belongs to.
  GlobalBatch next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tanren
