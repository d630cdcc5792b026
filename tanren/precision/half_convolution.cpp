#include "tanren/precision/half_convolution.h"

#include <ATen/ATen.h>
#include <ATen/ops/convolution_backward_compositeexplicitautograd_dispatch.h>
#include <torch/library.h>

namespace tanren {

namespace {

using ConvolutionGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// For a 1 × 1 kernel with a stride oneDNN copies the pixels that it reads into a buffer, a vector
// of channels at a time: 8 with AVX2, 16 with AVX-512. It writes past the buffer's end (libtorch
// 2.11) if the channels do not fill the last vector with AVX2, or the first one with AVX-512. All
// processors avoid that code, so that this path is tested on all.
bool writes_past_the_end(const at::Tensor& input, const at::Tensor& weight,
                         c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, bool transposed,
                         const c10::SymInt& groups) {
  if (transposed || groups != 1 || input.dim() != 4) return false;
  const bool is_strided = stride[0] != 1 || stride.back() != 1;
  const bool is_single = weight.size(2) == 1 && weight.size(3) == 1;
  const bool is_padded = padding[0] != 0 || padding.back() != 0;
  return is_strided && is_single && !is_padded && (input.size(1) % 8 != 0 || input.size(1) < 16);
}

// The same convolution without stride, over the pixels that the strided one reads.
ConvolutionGradients unstrided_backward(const at::Tensor& grad_output, const at::Tensor& input,
                                        const at::Tensor& weight,
                                        at::OptionalSymIntArrayRef bias_sizes,
                                        c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                                        c10::SymIntArrayRef dilation,
                                        c10::SymIntArrayRef output_padding,
                                        const c10::SymInt& groups, std::array<bool, 3> wanted) {
  const auto seen_of = [&](const at::Tensor& whole) {
    return whole.slice(2, 0, whole.size(2), stride[0].expect_int())
        .slice(3, 0, whole.size(3), stride.back().expect_int());
  };
  const std::array<c10::SymInt, 2> ones = {1, 1};
  ConvolutionGradients gradients = at::convolution_backward_symint(
      grad_output, seen_of(input).contiguous(input.suggest_memory_format()), weight, bias_sizes,
      ones, padding, dilation, /*transposed=*/false, output_padding, groups, wanted);
  if (wanted[0]) {
    const at::Tensor whole = at::zeros_like(input);
    seen_of(whole).copy_(std::get<0>(gradients));
    std::get<0>(gradients) = whole;
  }
  return gradients;
}

ConvolutionGradients convolution_backward(const at::Tensor& grad_output, const at::Tensor& input,
                                          const at::Tensor& weight,
                                          at::OptionalSymIntArrayRef bias_sizes,
                                          c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                                          c10::SymIntArrayRef dilation, bool transposed,
                                          c10::SymIntArrayRef output_padding, c10::SymInt groups,
                                          std::array<bool, 3> wanted) {
  if (writes_past_the_end(input, weight, stride, padding, transposed, groups)) {
    return unstrided_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation,
                              output_padding, groups, wanted);
  }
  if (grad_output.scalar_type() != at::kHalf || !wanted[1]) {
    return at::compositeexplicitautograd::convolution_backward_symint(
        grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed,
        output_padding, groups, wanted);
  }
  // Both parts go through the dispatcher, so that a dry run sees each.
  const auto part = [&](const at::Tensor& gradient, const at::Tensor& in, const at::Tensor& w,
                        std::array<bool, 3> mask) {
    return at::convolution_backward_symint(gradient, in, w, bias_sizes, stride, padding, dilation,
                                           transposed, output_padding, groups, mask);
  };
  ConvolutionGradients gradients;
  if (wanted[0] || wanted[2]) {
    gradients = part(grad_output, input, weight, {wanted[0], false, wanted[2]});
  }
  std::get<1>(gradients) = std::get<1>(part(grad_output.to(at::kFloat), input.to(at::kFloat),
                                            weight.to(at::kFloat), {false, true, false}))
                               .to(at::kHalf);
  return gradients;
}

}  // namespace

void enable_half_convolution() {
  static const torch::Library library = [] {
    torch::Library aten(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    aten.impl("convolution_backward", convolution_backward);
    return aten;
  }();
}

}  // namespace tanren
