// Initialisations that the reference models share. They draw from torch's generator, module by
// module in the order of Module::modules(), as the references do.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace tanren {

// While it exists, draw_normal and draw_uniform of this thread leave tensors unchanged. It is for
// models whose weights a file replaces. Kinds that draw all weights with these functions set
// KindTraits::makes_anew.
class NoInitScope {
 public:
  NoInitScope();
  ~NoInitScope();
  NoInitScope(const NoInitScope&) = delete;
  NoInitScope& operator=(const NoInitScope&) = delete;

 private:
  bool before_;
};

// A NoInitScope in which weights also take no memory. For a tensor of two or more dims the draws
// return one of the same shape with a stride of 0 in dim 0, so that all rows share one row of
// memory. The code that builds a module in it must give each such parameter its own memory
// (set_data) before the parameter is read.
class NoWeightsScope {
 public:
  NoWeightsScope();
  ~NoWeightsScope();
  NoWeightsScope(const NoWeightsScope&) = delete;
  NoWeightsScope& operator=(const NoWeightsScope&) = delete;

 private:
  NoInitScope no_init_;
  bool before_;
};

// Fill `tensor` from torch's generator, and return it: normal around 0, or uniform in
// [-bound, bound).
at::Tensor draw_normal(at::Tensor tensor, double deviation);
at::Tensor draw_uniform(at::Tensor tensor, double bound);

// Every 4-dim weight: normal with variance 2 / (out × kernel²) (He et al., 2015, fan out). With
// `zero_bias` its bias is set to 0.
void init_convolutions(const torch::nn::Module& module, bool zero_bias);
// Every 2-dim weight: normal with this standard deviation; its bias is set to 0.
void init_linears(const torch::nn::Module& module, double deviation);

}  // namespace tanren
