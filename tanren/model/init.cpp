#include "tanren/model/init.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

namespace tanren {

namespace {

// The module's own `weight` and `bias`; both undefined unless its weight has `dims` dims.
std::pair<at::Tensor, at::Tensor> own(const torch::nn::Module& module, int64_t dims) {
  const auto parameters = module.named_parameters(/*recurse=*/false);
  const auto* weight = parameters.find("weight");
  if (weight == nullptr || weight->dim() != dims) return {};
  const auto* bias = parameters.find("bias");
  return {*weight, bias != nullptr ? *bias : at::Tensor()};
}

}  // namespace

void init_convolutions(const torch::nn::Module& module, bool zero_bias) {
  const at::NoGradGuard no_grad;
  for (const auto& child : module.modules(/*include_self=*/false)) {
    auto [weight, bias] = own(*child, 4);
    if (!weight.defined()) continue;
    const auto fan_out = static_cast<double>(weight.size(0) * weight.size(2) * weight.size(3));
    weight.normal_(0, std::sqrt(2.0 / fan_out));
    if (zero_bias && bias.defined()) bias.zero_();
  }
}

void init_linears(const torch::nn::Module& module, double deviation) {
  const at::NoGradGuard no_grad;
  for (const auto& child : module.modules(/*include_self=*/false)) {
    auto [weight, bias] = own(*child, 2);
    if (!weight.defined()) continue;
    weight.normal_(0, deviation);
    if (bias.defined()) bias.zero_();
  }
}

}  // namespace tanren
