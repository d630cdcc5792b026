// Muon (Jordan et al., 2024) as torch.optim.Muon for matrices, AdamW for everything else: 0- and
// 1-dim parameters and what adamw_parameters names. A convolution's kernel is a matrix of one row
// per output channel. The orthogonalisation runs in bf16 on accelerators (as torch's everywhere)
// and in the parameter's own dtype on the CPU. Called by make_optimizer.
#pragma once

#include "tanren/optimizer/optimizer.h"

namespace tanren {

// ConfigError as make_optimizer.
std::unique_ptr<Optimizer> make_muon(const OptimizerOptions& options,
                                     const std::vector<NamedParameter>& parameters);

// The nearest semi-orthogonal matrix of `matrix` [n, m], roughly: `steps` quintic Newton-Schulz
// iterations, singular values in about [0.7, 1.2] after 5.
at::Tensor orthogonalised(const at::Tensor& matrix, int64_t steps);

}  // namespace tanren
