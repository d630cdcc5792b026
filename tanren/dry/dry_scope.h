// DryScope: a dry run. Inside it, on this thread, new tensors report the CPU as their device and
// have addresses, but take no memory until something is written there. torch's operators on them
// compute shapes only; autograd and autocast work as usual, and a TraceScope records the bytes. So
// a training step of any size runs in milliseconds and its memory use is known exactly. An operator
// without a known shape function runs for real, on zeros. Memory reads as 0; asking torch for a
// value (item) throws NeedsValues, so a model that needs one cannot be run dry. An observer is
// called for every operator (dry_observer.h): ForwardWork counts, model/layer_table makes a table.
// At most one scope per process (a second one throws c10::Error), not while other threads make
// tensors.
#pragma once

#include "tanren/base/error.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

class DryObserver;

// A model cannot be run dry.
class NeedsValues : public Error {
 public:
  using Error::Error;
};

class DryScope {
 public:
  // New tensors of fewer than `real_bytes` bytes are real and hold values, except for the results
  // of operators on tensors without memory.
  explicit DryScope(DryObserver* observer = nullptr, int64_t real_bytes = 0);
  // A run that stands for one on `device`: operators keep tensors and take memory as they do there,
  // with CUDA's lists of casts, although the tensors report the CPU.
  explicit DryScope(c10::DeviceType device, DryObserver* observer = nullptr);
  ~DryScope();
  DryScope(const DryScope&) = delete;
  DryScope& operator=(const DryScope&) = delete;

 private:
  bool flash_before_;
};

// Reports to the observer the multiply-adds of a forward that torch's operators do not show. This
// is needed for our own kernels and for an autograd Function, because inside a Function gradients
// are off and operators do not count as a forward. The backward has `gradients` products of the
// same size. Does nothing outside a dry run.
void note_dry_forward(int64_t multiply_adds, int64_t gradients = 2);

// Whether `tensor` was made in a dry run. If so, our kernels must not read or write its elements.
inline bool is_dry(const at::Tensor& tensor) {
  return tensor.defined() && tensor.key_set().has_backend(c10::BackendComponent::MetaBit);
}

// The device whose kernels compute on `tensor`: its own, or in a dry run the one that the run
// stands for.
c10::DeviceType kernels_of(const at::Tensor& tensor);
// Whether the CPU's kernels, which are our own, compute on `tensor`. All code that chooses a kernel
// asks here.
inline bool has_cpu_kernels(const at::Tensor& tensor) { return kernels_of(tensor) == c10::kCPU; }

}  // namespace tanren
