#include "tanren/base/device_reads.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/core/grad_mode.h>

#include <exception>

namespace tanren {

namespace {

thread_local int64_t reads = 0;

constexpr int64_t kStageBytes = int64_t{32} << 20;
constexpr int64_t kAlignment = 64;

int64_t staged_bytes(const at::Tensor& tensor) {
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

at::Tensor copied(const at::Tensor& tensor) {
  ++reads;
  return tensor.detach().to(at::kCPU).contiguous();
}

template <class T>
std::vector<double> widened(const at::Tensor& values) {
  const T* data = values.const_data_ptr<T>();
  return {data, data + values.numel()};
}

// Returns an undefined tensor if no pinned memory is left. Any error of the allocation means this.
at::Tensor pinned(int64_t bytes) {
  try {
    return at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(true));
  } catch (const std::exception&) {
    return {};
  }
}

// Copies tensors of one device through pinned memory, with one wait for all.
void copy_staged(const std::vector<at::Tensor>& tensors, const std::vector<size_t>& staged,
                 int64_t bytes, std::vector<at::Tensor>& copies) {
  if (staged.empty()) return;
  const at::Tensor stage = pinned(bytes);
  if (!stage.defined()) {
    for (const size_t i : staged) copies[i] = copied(tensors[i]);
    return;
  }
  std::vector<at::Tensor> views;
  int64_t begin = 0;
  for (const size_t i : staged) {
    const at::Tensor& tensor = tensors[i];
    const at::Tensor part = stage.narrow(0, begin, static_cast<int64_t>(tensor.nbytes()));
    views.push_back(part.view(tensor.scalar_type()).view(tensor.sizes()));
    views.back().copy_(tensor, /*non_blocking=*/true);
    begin += staged_bytes(tensor);
  }
  at::accelerator::getCurrentStream(tensors[staged[0]].device().index()).synchronize();
  ++reads;
  for (size_t k = 0; k < staged.size(); ++k) copies[staged[k]] = views[k].clone();
}

}  // namespace

std::vector<at::Tensor> host_copies(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> copies(tensors.size());
  std::vector<size_t> staged;
  int64_t bytes = 0;
  const auto flush = [&] {
    copy_staged(tensors, staged, bytes, copies);
    staged.clear();
    bytes = 0;
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    const int64_t own = staged_bytes(tensor);
    if (tensor.is_cpu() || own > kStageBytes || own == 0) {
      copies[i] = tensor.is_cpu() ? tensor.detach().contiguous() : copied(tensor);
      continue;
    }
    const bool fits = bytes + own <= kStageBytes;
    if (!staged.empty() && (!fits || tensors[staged[0]].device() != tensor.device())) flush();
    staged.push_back(i);
    bytes += own;
  }
  flush();
  return copies;
}

std::vector<double> read_to_host(const at::Tensor& values) {
  ++reads;
  const at::Tensor on_host = (values.device().is_cpu() ? values : values.to(at::kCPU)).contiguous();
  switch (on_host.scalar_type()) {  // no operator: in a dry run operators compute no values
    case at::kDouble: return widened<double>(on_host);
    case at::kFloat: return widened<float>(on_host);
    case at::kBFloat16: return widened<at::BFloat16>(on_host);
    case at::kHalf: return widened<at::Half>(on_host);
    default: return widened<double>(on_host.to(at::kDouble));
  }
}

int64_t num_device_reads() { return reads; }

}  // namespace tanren
