// Master weights: an optimizer around an optimizer, for weights of 16 bits. The inner one updates
// copies in fp32, which keep what an update adds below the weights' last bit; after each step the
// weights are the rounded copies. Micikevicius et al. 2018 (arXiv 1710.03740), as level O2 of
// apex.amp. Called by objectives.
#pragma once

#include "tanren/optimizer/optimizer.h"

#include <memory>
#include <vector>

namespace tanren {

// As make_optimizer, with the same arguments. Parameters of 16 bits must have gradients in fp32
// (set_grad_dtype); others are updated by the inner optimizer directly. The copies begin as the
// weights are now. State: the inner optimizer's, and each copy as `<parameter>.master_weight`, with
// its parameter's shape and strides. load() also writes the weights: they become the rounded
// copies.
std::unique_ptr<Optimizer> make_master_weights(const OptimizerOptions& asked,
                                               const std::vector<NamedParameter>& parameters,
                                               const std::vector<NamedParameter>& model = {});

}  // namespace tanren
