// DryScope: a dry run. Inside it, on this thread, new tensors say that they are on the CPU and have
// addresses, but no memory stands behind these until somebody writes there; torch's operators on
// them compute shapes alone; autograd and autocast work as ever, and a TraceScope notes the bytes. So
// a training step of any size runs in milliseconds and what it takes is known exactly.
// An operator for which nobody knows the shapes runs for real, on zeros. Who reads memory finds 0; who
// asks torch for a value (item) gets an Error: such a model cannot be run dry.
// At most one scope per process, not while other threads make tensors. Called by forecast/predict.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>

namespace tanren {

class DryScope {
 public:
  DryScope();
  ~DryScope();
  DryScope(const DryScope&) = delete;
  DryScope& operator=(const DryScope&) = delete;

  // Of the forwards so far, by the number of the block that they were in (block_trail.h; 0: none).
  const std::map<uint16_t, int64_t>& multiply_adds() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Of a forward of ours whose products torch's operators do not show as such: its own kernel's, or those of
// a Function of autograd, inside of which nothing looks like a forward. Nothing outside of a dry run.
void note_dry_forward(int64_t multiply_adds);

// Whether `tensor` was made in a dry run: a kernel of ours then leaves its numbers alone.
inline bool is_dry(const at::Tensor& tensor) {
  return tensor.defined() && tensor.key_set().has_backend(c10::BackendComponent::MetaBit);
}

}  // namespace tanren
