#include "tanren/base/device_reads.h"

#include <ATen/ATen.h>

namespace tanren {

namespace {
thread_local int64_t reads = 0;
}  // namespace

std::vector<double> read_to_host(const at::Tensor& values) {
  ++reads;
  std::vector<double> host(values.numel());
  const at::Tensor on_host = values.device().is_cpu() ? values : values.to(at::kCPU);
  if (on_host.scalar_type() == at::kFloat && on_host.is_contiguous()) {
    const float* data = on_host.const_data_ptr<float>();
    host.assign(data, data + host.size());
    return host;
  }
  const at::Tensor wide = on_host.to(at::kDouble).contiguous();
  const double* data = wide.const_data_ptr<double>();
  host.assign(data, data + host.size());
  return host;
}

int64_t num_device_reads() { return reads; }

}  // namespace tanren
