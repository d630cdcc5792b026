#include "tanren/base/quantized_weight.h"

#include "tanren/base/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

namespace tanren {
namespace {

// The sum of a longer row of values of magnitude 128 does not fit into int32.
constexpr int64_t kLongestRow = std::numeric_limits<int32_t>::max() / 128;

// What is wrong with a weight of this shape, if anything is.
std::optional<std::string> fault_of_shape(at::IntArrayRef sizes) {
  if (sizes.empty()) return "is a single number";
  int64_t row = 1;
  for (size_t i = 1; i < sizes.size(); ++i) {
    if (__builtin_mul_overflow(row, sizes[i], &row)) return "has a shape beyond any memory";
  }
  if (sizes[0] == 0 || row == 0) return fmt::format("is empty, of shape {}", sizes.vec());
  if (row <= kLongestRow) return std::nullopt;
  return fmt::format("has {} elements a channel, more than {}", row, kLongestRow);
}

// The weight as [out, groups, group].
at::Tensor in_groups(const at::Tensor& weight, int64_t groups) {
  return weight.reshape({weight.size(0), groups, -1});
}

// Sums some rows at a time, because sum() first makes an int32 copy of its input.
at::Tensor sums_of(const at::Tensor& values, int64_t groups) {
  constexpr int64_t kSummedElements = 256 << 10;
  const int64_t out = values.size(0);
  const int64_t most = std::max<int64_t>(kSummedElements / (values.numel() / out), 1);
  const at::Tensor all = in_groups(values, groups);
  at::Tensor sums = at::empty({out, groups}, values.options().dtype(at::kInt));
  for (int64_t first = 0; first < out; first += most) {
    const int64_t count = std::min(most, out - first);
    const at::Tensor some = all.narrow(0, first, count);
    sums.narrow(0, first, count).copy_(some.sum(-1, /*keepdim=*/false, at::kInt));
  }
  return sums;
}

}  // namespace

at::Tensor weight_scales(const at::Tensor& weight, std::string_view name, int64_t group) {
  if (!weight.is_floating_point()) {
    throw InputError(fmt::format("[quantize] {} has dtype {}; give floating numbers", name,
                                 c10::toString(weight.scalar_type())));
  }
  if (const auto fault = fault_of_shape(weight.sizes())) {
    throw InputError(fmt::format("[quantize] {} {}; keep it as it is", name, *fault));
  }
  const int64_t row = weight.numel() / weight.size(0);
  if (group < 0 || group % 4 != 0 || (group > 0 && row % group != 0)) {
    throw InputError(
        fmt::format("[quantize] {} has {} elements a channel, in groups of {}; give a "
                    "multiple of 4 that divides them, or 0",
                    name, row, group));
  }
  const at::Tensor largest =
      in_groups(weight.detach().to(at::kFloat), group == 0 ? 1 : row / group).abs().amax(-1);
  if (!largest.isfinite().all().item<bool>()) {
    throw InputError(
        fmt::format("[quantize] {} has an element that is not finite; repair the "
                    "weights, or keep it as it is",
                    name));
  }
  return largest.div_(static_cast<double>(kLargestInt8))
      .clamp_min_(std::numeric_limits<float>::min());
}

QuantizedWeight quantize_weight(const at::Tensor& weight, std::string_view name, int64_t group) {
  const at::Tensor scales = weight_scales(weight, name, group);
  at::Tensor scaled =
      in_groups(weight.detach().to(at::kFloat), scales.size(1)) * scales.reciprocal().unsqueeze(-1);
  const at::Tensor values = scaled.round_()
                                .clamp_(-kLargestInt8, kLargestInt8)
                                .to(at::kChar)
                                .contiguous()  // those of a transposed weight are not
                                .view(weight.sizes());
  return {values, scales, sums_of(values, scales.size(1))};
}

QuantizedWeight checked_weight(const at::Tensor& values, const at::Tensor& scales,
                               std::string_view name) {
  const auto refuse = [&](const std::string& what) {
    throw CheckpointError(fmt::format("[quantize] {} {}; write the file again", name, what));
  };
  if (values.scalar_type() != at::kChar || scales.scalar_type() != at::kFloat) {
    refuse(fmt::format("has values of dtype {} and scales of dtype {}, not int8 and fp32",
                       c10::toString(values.scalar_type()), c10::toString(scales.scalar_type())));
  }
  if (const auto fault = fault_of_shape(values.sizes())) refuse(*fault);
  const int64_t row = values.numel() / values.size(0);
  const int64_t groups = scales.dim() == 2 ? scales.size(1) : 1;
  const bool fits = (scales.dim() == 1 || scales.dim() == 2) && scales.size(0) == values.size(0) &&
                    groups > 0 && row % groups == 0 && (groups == 1 || row / groups % 4 == 0);
  if (!fits) {
    refuse(fmt::format("has scales of shape {} for values of shape {}", scales.sizes().vec(),
                       values.sizes().vec()));
  }
  const at::Tensor own = scales.reshape({-1, groups}).contiguous();
  constexpr float kLargestScale = std::numeric_limits<float>::max() / 128;
  if (!own.gt(0).logical_and(own.le(kLargestScale)).all().item<bool>()) {
    refuse("has a scale that is not finite and above 0, or makes -128 infinite");
  }
  const at::Tensor dense = values.contiguous();
  return {dense, own, sums_of(dense, groups)};
}

at::Tensor expand(const QuantizedWeight& weight, at::ScalarType dtype) {
  return (in_groups(weight.values, weight.groups()).to(at::kFloat) * weight.scales.unsqueeze(-1))
      .view(weight.values.sizes())
      .to(dtype);
}

}  // namespace tanren
