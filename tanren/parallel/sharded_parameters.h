// ShardedParameters: parameters whose updates are shared out over ranks. They become views of one buffer
// per bucket, laid out as their gradients; this rank updates its part of each, and one gathering per
// bucket then brings the others' parts, while the host goes on. Invariant: between start_gather() and
// wait() nobody reads or writes the parameters, but operators under a WaitOnUse. One per objective, on
// the thread of the step.
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

  // What this rank updates: 1-dim views of the parameters, whose .grad are the owned gradients; one
  // for each of Gradients::slices().
  const std::vector<at::Tensor>& owned() const { return owned_; }
  // After an update: every part goes to all ranks, the first parameters' first, as a forward needs them.
  void start_gather(Communicator& communicator);
  // The parameters are whole again. CommError.
  void wait();
  // Those of the bucket with this memory, if it is one of these and under way: they may be used now, on
  // an accelerator by the present stream, and by others after wait(). CommError.
  void wait_for(const c10::StorageImpl* memory);
  // Buckets that are under way.
  int64_t num_gathering() const;

 private:
  std::vector<at::Tensor> whole_;  // per bucket
  std::vector<at::Tensor> parts_;
  std::vector<at::Tensor> owned_;
  std::vector<Communicator::Work> works_;  // per bucket; null: it is whole, for every stream
};

// While it lives, each operator of this thread that is given a parameter on its way waits for its bucket
// first: a forward begins while the later layers' parameters still come. It sees what goes through
// libtorch's dispatcher, and OperatorRecord, so what reads memory by itself or on another thread must
// wait() before. Of those given, which outlive it; where there are none it costs nothing. One at a time
// on a thread.
class WaitOnUse {
 public:
  explicit WaitOnUse(std::vector<ShardedParameters*> shards);
  ~WaitOnUse();
  WaitOnUse(const WaitOnUse&) = delete;
  WaitOnUse& operator=(const WaitOnUse&) = delete;

  // All are whole. What a wait has thrown in between, where no operator may throw it: CommError.
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
