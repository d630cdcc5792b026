// Collectives and messages between ranks that are threads, each with a simulated device. Their
// order is NCCL's: a group of ranks has its own stream on each device. An operation waits for the
// current stream and for the rank's earlier operations in the group. wait() makes the current
// stream wait for the operation. Messages started together (startCoalescing) have no order among
// them: each runs when the other rank has reached its side. A finished operation holds none of the
// caller's tensors.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>
#include <string>

namespace tanren::sim {

// What the ranks of one group share to match their operations.
class RankGroup {
 public:
  static std::shared_ptr<RankGroup> of(int size);
  virtual ~RankGroup() = default;
  virtual c10::intrusive_ptr<c10d::Backend> backend(int rank) = 0;
  // The subgroup `name` of `size` ranks. All calls with one name return the same group.
  virtual std::shared_ptr<RankGroup> part(const std::string& name, int size) = 0;
};

}  // namespace tanren::sim
