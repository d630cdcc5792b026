// ShardedParameters: parameters whose updates are shared out over ranks. They become views of one buffer
// per bucket, laid out as their gradients; this rank updates its part of each, and one gathering per
// bucket then brings the others' parts, while the host goes on. Invariant: between start_gather() and
// wait() nobody may read or write the parameters. One per objective, on the thread of the step.
#pragma once

#include "tanren/comm/communicator.h"
#include "tanren/parallel/gradients.h"

#include <vector>

namespace tanren {

class ShardedParameters {
 public:
  // Moves the parameters of shared gradients, which outlive this, into the buffers.
  explicit ShardedParameters(const Gradients& gradients);
  ~ShardedParameters();
  ShardedParameters(const ShardedParameters&) = delete;
  ShardedParameters& operator=(const ShardedParameters&) = delete;

  // What this rank updates: 1-dim views of the parameters, whose .grad are the owned gradients; one
  // for each of Gradients::slices().
  const std::vector<at::Tensor>& owned() const { return owned_; }
  // After an update: every part goes to all ranks, the first parameters' first, as a forward needs them.
  void start_gather(Communicator& communicator);
  // The parameters are whole again. CommError.
  void wait();

 private:
  std::vector<at::Tensor> whole_;  // per bucket
  std::vector<at::Tensor> parts_;
  std::vector<at::Tensor> owned_;
  std::vector<Communicator::Work> works_;
};

}  // namespace tanren
