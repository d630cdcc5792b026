#include "tanren/ops/gelu.h"

#include "tanren/base/operator_record.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/ops/parallel_for.h"
#include "tanren/ops/rows.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

namespace tanren {
namespace {

constexpr int64_t kGrain = 16384;

class GeluFunction : public torch::autograd::Function<GeluFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& given) {
    const at::Tensor x = given.contiguous();
    context->save_for_backward({x});
    at::Tensor y = at::empty_like(x);
    const OperatorRecord record("tanren::gelu", x, y);
    if (is_dry(y)) return y;
    const auto* from = x.const_data_ptr<c10::BFloat16>();
    auto* to = y.mutable_data_ptr<c10::BFloat16>();
    parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      gelu_tanh_row(from + begin, end - begin, to + begin);
    });
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    if (at::GradMode::is_enabled()) return {at::gelu_backward(gradients[0], x, "tanh")};
    const at::Tensor gradient = gradients[0].contiguous();
    at::Tensor result = at::empty_like(x);
    if (is_dry(result)) return {result};
    const OperatorRecord record("tanren::gelu_backward", x, gradient, result);
    const auto* at_x = x.const_data_ptr<c10::BFloat16>();
    const auto* from = gradient.const_data_ptr<c10::BFloat16>();
    auto* to = result.mutable_data_ptr<c10::BFloat16>();
    parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      gelu_tanh_gradient_row(at_x + begin, from + begin, end - begin, to + begin);
    });
    return {result};
  }
};

}  // namespace

at::Tensor gelu_tanh(const at::Tensor& x) {
  if (has_cpu_kernels(x) && x.scalar_type() == at::kBFloat16) return GeluFunction::apply(x);
  return at::gelu(x, /*approximate=*/"tanh");
}

}  // namespace tanren
