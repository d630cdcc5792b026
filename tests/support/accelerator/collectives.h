// Collectives of ranks that are threads, each with a simulated device, as NCCL's: a start makes the
// device's stream for collectives follow the current stream, and wait() makes the current stream
// follow it. They hold none of the caller's tensors.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>

namespace tanren::sim {

// The meeting point of one group of ranks.
class RankGroup {
 public:
  static std::shared_ptr<RankGroup> of(int size);
  virtual ~RankGroup() = default;
  virtual c10::intrusive_ptr<c10d::Backend> backend(int rank) = 0;
};

}  // namespace tanren::sim
