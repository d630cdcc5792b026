// Collectives and messages of ranks that are threads, each with a simulated device, as NCCL's: a
// group of ranks has a stream of its own on each device. What a rank starts waits for the current
// stream, and for what the rank started before in the group; wait() makes the current stream follow
// it. Messages that are started together (startCoalescing) go at once, each when the other rank has
// come to its end. They hold none of the caller's tensors once they run.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>
#include <string>

namespace tanren::sim {

// The meeting point of one group of ranks.
class RankGroup {
 public:
  static std::shared_ptr<RankGroup> of(int size);
  virtual ~RankGroup() = default;
  virtual c10::intrusive_ptr<c10d::Backend> backend(int rank) = 0;
  // The group of some of its ranks, the same for each that asks by this name.
  virtual std::shared_ptr<RankGroup> part(const std::string& name, int size) = 0;
};

}  // namespace tanren::sim
