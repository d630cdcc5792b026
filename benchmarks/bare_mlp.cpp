// The bare libtorch program that start-up is measured against: the MLP 64-128-128-10, one AdamW
// step on 32 samples, nothing else.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  at::manual_seed(0);
  const std::vector<int64_t> sizes = {64, 128, 128, 10};
  std::vector<at::Tensor> parameters, gradients, first, second, steps;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(sizes[i]));
    parameters.push_back(
        at::empty({sizes[i + 1], sizes[i]}).uniform_(-bound, bound).requires_grad_());
    parameters.push_back(at::empty({sizes[i + 1]}).uniform_(-bound, bound).requires_grad_());
  }
  at::Tensor x = at::rand({32, 64});
  for (size_t i = 0; i < parameters.size(); i += 2) {
    x = at::linear(x, parameters[i], parameters[i + 1]);
    if (i + 2 < parameters.size()) x = at::relu(x);
  }
  const at::Tensor loss = at::cross_entropy_loss(x, at::randint(10, {32}, at::kLong));
  loss.backward();
  for (const auto& parameter : parameters) {
    gradients.push_back(parameter.grad());
    first.push_back(at::zeros_like(parameter));
    second.push_back(at::zeros_like(parameter));
    steps.push_back(at::ones({}));
  }
  const at::NoGradGuard no_grad;
  at::_fused_adamw_(parameters, gradients, first, second, {}, steps, 1e-3, 0.9, 0.999, 0.01, 1e-8,
                    false, false);
  std::printf("%g\n", loss.item<double>());
}
