#include "tanren/quantize/replaced.h"

#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <limits>
#include <vector>

namespace tanren {

namespace {

// Repeats the row along dim 0, whose stride is 0 even if its size is 1.
at::Tensor in_each_place(const at::Tensor& row, at::IntArrayRef sizes) {
  at::Tensor all = row.expand(sizes);
  if (sizes.front() > 1) return all;
  std::vector<int64_t> strides = all.strides().vec();
  strides.front() = 0;
  return all.as_strided(sizes, strides);
}

}  // namespace

void replace_by_nan(at::Tensor parameter) {
  const at::NoGradGuard no_grad;
  if (is_replaced(parameter)) {
    parameter.detach().select(0, 0).fill_(std::numeric_limits<double>::quiet_NaN());
    return;
  }
  const MemoryScope memory(MemoryKind::weights);
  std::vector<int64_t> sizes = parameter.sizes().vec();
  sizes.front() = 1;
  const at::Tensor row =
      at::empty(sizes, parameter.options().requires_grad(false), parameter.suggest_memory_format());
  row.fill_(std::numeric_limits<double>::quiet_NaN());
  parameter.requires_grad_(false);
  const bool has_views = parameter.storage().use_count() > 1;
  if (has_views) parameter.detach().fill_(std::numeric_limits<double>::quiet_NaN());
  parameter.set_data(in_each_place(row, parameter.sizes()));
}

bool is_replaced(const at::Tensor& parameter) {
  return parameter.dim() > 0 && parameter.numel() > 0 && parameter.stride(0) == 0;
}

void refuse_replaced(const at::Tensor& parameter, const std::string& name) {
  if (!is_replaced(parameter)) return;
  throw InputError("[quantize] " + name +
                   " has an 8-bit weight already; quantise the model that was trained");
}

void lay_replaced_channels_last(at::Tensor parameter) {
  const at::NoGradGuard no_grad;
  const at::Tensor row = parameter.detach().narrow(0, 0, 1);
  parameter.set_data(
      in_each_place(row.contiguous(at::MemoryFormat::ChannelsLast), parameter.sizes()));
}

}  // namespace tanren
