#include "tanren/ops/quantized_linear.h"

#include "tanren/base/error.h"
#include "tanren/base/operator_record.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/ops/int8_product.h"
#include "tanren/ops/int8_rows.h"

#include <fmt/format.h>
#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tanren {
namespace {

bool is_narrow_float(at::ScalarType dtype) { return dtype == at::kFloat || dtype == at::kBFloat16; }

void check_linear(const at::Tensor& x, const PackedWeight& weight, const at::Tensor& bias,
                  at::ScalarType dtype) {
  if (!x.device().is_cpu() || !is_narrow_float(x.scalar_type()) || !is_narrow_float(dtype)) {
    throw Error(
        fmt::format("[ops] quantized_linear from {} to {} on {}; give fp32 or bf16 on the "
                    "CPU",
                    c10::toString(x.scalar_type()), c10::toString(dtype), x.device().str()));
  }
  if (x.dim() == 0 || x.size(-1) != weight.in || (bias.defined() && bias.numel() != weight.out)) {
    throw Error(fmt::format(
        "[ops] quantized_linear of {} elements a row and {} of the bias with a "
        "weight {} × {}; give rows of the weight's width",
        x.dim() == 0 ? 1 : x.size(-1), bias.defined() ? bias.numel() : 0, weight.out, weight.in));
  }
}

template <class T>
FillRows quantizing_rows(const at::Tensor& x, const ByteRange& range) {
  return [from = x.const_data_ptr<T>(), width = x.size(-1), range](
             int64_t first, int64_t count, int64_t stride, uint8_t* bytes, float* scales) {
    for (int64_t r = 0; r < count; ++r) {
      scales[r] = quantize_row(from + (first + r) * width, width, range, bytes + r * stride);
    }
  };
}

}  // namespace

void check_input_scale(const InputScale& input, std::string_view name) {
  if (!std::isnormal(input.scale) || input.scale < 0 || input.zero_point < 0 ||
      input.zero_point > 255) {
    throw InputError(
        fmt::format("[quantize] {} has an input scale {} with zero point {}; give a "
                    "finite scale above 0 and a zero point from 0 to 255",
                    name, input.scale, input.zero_point));
  }
}

at::Tensor quantized_linear(const at::Tensor& x, const PackedWeight& weight, const at::Tensor& bias,
                            const std::optional<InputScale>& input, at::ScalarType dtype) {
  check_linear(x, weight, bias, dtype);
  const at::Tensor rows = x.detach().contiguous();
  const at::Tensor added = bias.defined() ? bias.detach().to(at::kFloat).contiguous() : bias;
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.out;
  at::Tensor out = at::empty(sizes, x.options().dtype(dtype).requires_grad(false));
  note_dry_forward(out.numel() * weight.in, /*gradients=*/0);
  const OperatorRecord record("tanren::quantized_linear", rows, out, weight.panels, weight.scales);
  if (is_dry(out)) return out;
  const ByteRange range = input ? ByteRange{false, input->scale, input->zero_point} : ByteRange{};
  const FillRows fill = x.scalar_type() == at::kBFloat16
                            ? quantizing_rows<c10::BFloat16>(rows, range)
                            : quantizing_rows<float>(rows, range);
  int8_product(fill, weight, range.zero_point, added, out);
  return out;
}

at::Tensor quantized_linear_plain(const at::Tensor& x, const QuantizedWeight& weight,
                                  const at::Tensor& bias, const std::optional<InputScale>& input,
                                  at::ScalarType dtype) {
  const at::Tensor rows = x.detach().to(at::kFloat).reshape({-1, weight.row()});
  const at::Tensor largest = rows.abs().amax(1, /*keepdim=*/true);
  at::Tensor scale, whole;  // [rows, 1]; [rows, in], the zero point subtracted
  if (input) {
    scale = at::full_like(largest, input->scale);
    whole = (rows * scale.reciprocal()).round().clamp(-input->zero_point, 255 - input->zero_point);
  } else {
    const at::Tensor own = largest / 127;
    scale = at::where(own < std::numeric_limits<float>::min(), at::zeros_like(own), own);
    const at::Tensor inverse = at::where(scale == 0, scale, scale.reciprocal());
    whole = (rows * inverse).round().clamp(-kLargestInt8, kLargestInt8);
  }
  scale = at::where(largest.isfinite(), scale, at::full_like(scale, NAN));
  whole = whole.nan_to_num(0, 0, 0);
  // Sums of whole numbers below 2⁵³ are exact in fp64, in any order.
  const int64_t groups = weight.groups(), group = weight.group();
  const at::Tensor values = weight.values.view({weight.out(), -1}).to(at::kDouble);
  at::Tensor total;
  for (int64_t i = 0; i < groups; ++i) {
    const at::Tensor sums = at::mm(whole.narrow(1, i * group, group).to(at::kDouble),
                                   values.narrow(1, i * group, group).t());
    const at::Tensor part = sums.to(at::kFloat) * weight.scales.select(1, i);
    total = i == 0 ? part : total + part;
  }
  total = total * scale;
  if (bias.defined()) total = total + bias.to(at::kFloat);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.out();
  return total.to(dtype).view(sizes);
}

}  // namespace tanren
