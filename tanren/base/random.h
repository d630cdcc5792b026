// Counter-based randomness: Philox (philox.h) keyed by what is drawn, not by
// when. Microbatch size, ranks, retry and resume therefore cannot change a draw.
//
// RandomScope holds, for the current thread, the (seed, attempt) and the samples of a forward;
// ops::dropout reads it. train_step and custom training loops open one around each forward.
#pragma once

#include "tanren/base/philox.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

class RandomScope {
 public:
  // `ids`: int64 [n] on the CPU, the sample ids along dim 0 of the forward's input.
  RandomScope(uint64_t seed, int64_t attempt, at::Tensor ids);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

  // The innermost scope of this thread; null if there is none.
  static const RandomScope* current();

  uint64_t seed() const { return seed_; }
  int64_t attempt() const { return attempt_; }
  const at::Tensor& ids() const { return ids_; }
  // The ids on `device`, copied there once, without a wait of the host.
  const at::Tensor& ids_on(at::Device device) const;

 private:
  uint64_t seed_;
  int64_t attempt_;
  at::Tensor ids_;
  mutable at::Tensor device_ids_;
  const RandomScope* outer_;
};

}  // namespace tanren
