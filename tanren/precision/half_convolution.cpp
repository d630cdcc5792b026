#include "tanren/precision/half_convolution.h"

#include <ATen/ATen.h>
#include <ATen/ops/convolution_backward_compositeexplicitautograd_dispatch.h>
#include <torch/library.h>

namespace tanren {

namespace {

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

Gradients convolution_backward(const at::Tensor& grad_output, const at::Tensor& input,
                               const at::Tensor& weight, at::OptionalSymIntArrayRef bias_sizes,
                               c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                               c10::SymIntArrayRef dilation, bool transposed,
                               c10::SymIntArrayRef output_padding, c10::SymInt groups,
                               std::array<bool, 3> wanted) {
  if (grad_output.scalar_type() != at::kHalf || !wanted[1]) {
    return at::compositeexplicitautograd::convolution_backward_symint(
        grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed,
        output_padding, groups, wanted);
  }
  // Both parts by the dispatcher, so that a dry run sees each.
  const auto part = [&](const at::Tensor& gradient, const at::Tensor& in, const at::Tensor& w,
                        std::array<bool, 3> mask) {
    return at::convolution_backward_symint(gradient, in, w, bias_sizes, stride, padding, dilation,
                                           transposed, output_padding, groups, mask);
  };
  Gradients gradients;
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
