// ShardedParameters: parameters whose updates are distributed over ranks. They become views of one
// buffer per bucket, laid out as their gradients. This rank updates its part of each buffer. One
// gather per bucket then brings the other ranks' parts, while the host continues. Invariant:
// between start_gather() and wait() only operators under a WaitOnUse read or write the parameters.
// One per objective, on the step's thread.
#pragma once

#include "tanren/comm/communicator.h"
#include "tanren/parallel/gradients.h"

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

namespace tanren {

class ShardedParameters {
 public:
  // Moves the parameters of shared gradients, which outlive this, into the buffers.
  explicit ShardedParameters(const Gradients& gradients);
  ~ShardedParameters();
  ShardedParameters(const ShardedParameters&) = delete;
  ShardedParameters& operator=(const ShardedParameters&) = delete;

  // The slices that this rank updates: 1-dim views of the parameters, whose .grad are the owned
  // gradients; one for each of Gradients::slices().
  const std::vector<at::Tensor>& owned() const { return owned_; }
  // After an update: sends every part to all ranks. The first parameters go first, because a
  // forward needs them first.
  void start_gather(Communicator& communicator);
  // Waits until the parameters are whole again. CommError.
  void wait();
  // Waits for the bucket with this memory, if it is one of these and under way. Its parameters may
  // then be used. On an accelerator only the current stream may use them; other streams may after
  // wait(). CommError.
  void wait_for(const c10::StorageImpl* memory);
  // How many buckets are under way.
  int64_t num_gathering() const;

 private:
  std::vector<at::Tensor> whole_;  // per bucket
  std::vector<at::Tensor> parts_;
  std::vector<at::Tensor> owned_;
  std::vector<Communicator::Work> works_;  // per bucket; null: it is whole, for every stream
};

// While it lives, each operator of this thread that is given a parameter under way first waits for
// its bucket, so a forward begins while the later layers' parameters are still arriving. It sees
// the operators of libtorch's dispatcher and those recorded by OperatorRecord; code that reads
// memory directly or on another thread must call wait() before. It covers the given shards, which
// must outlive it; without any it costs nothing. One at a time on a thread.
class WaitOnUse {
 public:
  explicit WaitOnUse(std::vector<ShardedParameters*> shards);
  ~WaitOnUse();
  WaitOnUse(const WaitOnUse&) = delete;
  WaitOnUse& operator=(const WaitOnUse&) = delete;

  // Waits until all parameters are whole. CommError, also for a wait that failed inside an
  // operator: libtorch ignores an exception that is thrown there.
  void finish();

 private:
  static std::unique_ptr<at::ObserverContext> before(const at::RecordFunction& call);
  void look_at(const c10::IValue& input);

  std::vector<ShardedParameters*> shards_;
  std::exception_ptr error_;
  WaitOnUse* outer_;
  std::optional<at::CallbackHandle> handle_;  // of libtorch's record of operators
};

}  // namespace tanren
