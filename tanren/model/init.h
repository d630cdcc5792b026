// Initialisations that the reference models share. They draw from torch's generator, module by
// module in the order of Module::modules(), as the references do.
#pragma once

#include <torch/nn/module.h>

namespace tanren {

// Every 4-dim weight: normal with variance 2 / (out × kernel²) (He et al., 2015, fan out). With
// `zero_bias` its bias is set to 0.
void init_convolutions(const torch::nn::Module& module, bool zero_bias);
// Every 2-dim weight: normal with this standard deviation; its bias is set to 0.
void init_linears(const torch::nn::Module& module, double deviation);

}  // namespace tanren
