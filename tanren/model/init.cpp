#include "tanren/model/init.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <utility>
#include <vector>

namespace tanren {

namespace {

thread_local bool skips_draws = false, makes_one_row = false;

// What a draw that is skipped returns.
at::Tensor not_drawn(at::Tensor tensor) {
  const bool has_rows = tensor.dim() >= 2 && tensor.numel() > 0 && tensor.stride(0) != 0;
  if (!makes_one_row || !has_rows) return tensor;
  std::vector<int64_t> strides = tensor.strides().vec();
  strides.front() = 0;
  return at::empty_strided(tensor.sizes(), strides, tensor.options());
}

// The module's own `weight` and `bias`; both undefined unless its weight has `dims` dims.
std::pair<at::Tensor, at::Tensor> own(const torch::nn::Module& module, int64_t dims) {
  const auto parameters = module.named_parameters(/*recurse=*/false);
  const auto* weight = parameters.find("weight");
  if (weight == nullptr || weight->dim() != dims) return {};
  const auto* bias = parameters.find("bias");
  return {*weight, bias != nullptr ? *bias : at::Tensor()};
}

}  // namespace

NoInitScope::NoInitScope() : before_(std::exchange(skips_draws, true)) {}
NoInitScope::~NoInitScope() { skips_draws = before_; }

NoWeightsScope::NoWeightsScope() : before_(std::exchange(makes_one_row, true)) {}
NoWeightsScope::~NoWeightsScope() { makes_one_row = before_; }

at::Tensor draw_normal(at::Tensor tensor, double deviation) {
  return skips_draws ? not_drawn(std::move(tensor)) : tensor.normal_(0, deviation);
}

at::Tensor draw_uniform(at::Tensor tensor, double bound) {
  return skips_draws ? not_drawn(std::move(tensor)) : tensor.uniform_(-bound, bound);
}

void init_convolutions(const torch::nn::Module& module, bool zero_bias) {
  const at::NoGradGuard no_grad;
  for (const auto& child : module.modules(/*include_self=*/false)) {
    auto [weight, bias] = own(*child, 4);
    if (!weight.defined()) continue;
    const auto fan_out = static_cast<double>(weight.size(0) * weight.size(2) * weight.size(3));
    draw_normal(weight, std::sqrt(2.0 / fan_out));
    if (zero_bias && bias.defined()) bias.zero_();
  }
}

void init_linears(const torch::nn::Module& module, double deviation) {
  const at::NoGradGuard no_grad;
  for (const auto& child : module.modules(/*include_self=*/false)) {
    auto [weight, bias] = own(*child, 2);
    if (!weight.defined()) continue;
    draw_normal(weight, deviation);
    if (bias.defined()) bias.zero_();
  }
}

}  // namespace tanren
