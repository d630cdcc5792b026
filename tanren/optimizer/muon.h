// Muon (Jordan et al., 2024) as torch.optim.Muon for matrices, AdamW for everything else: 0- and
// 1-dim parameters and those that adamw_parameters names. A convolution's kernel is a matrix with
// one row per output channel. The orthogonalisation runs in bf16 on accelerators (torch uses bf16
// everywhere) and in the parameter's dtype on the CPU. Called by make_optimizer.
#pragma once

#include "tanren/optimizer/optimizer.h"

namespace tanren {

// ConfigError as make_optimizer.
std::unique_ptr<Optimizer> make_muon(const OptimizerOptions& options,
                                     const std::vector<NamedParameter>& parameters);

// Approximates the semi-orthogonal matrix nearest to `matrix` [n, m] by `steps` quintic
// Newton-Schulz iterations; after 5 the singular values are in about [0.7, 1.2].
at::Tensor orthogonalised(const at::Tensor& matrix, int64_t steps);

}  // namespace tanren
