// What a task's forward must give so that its objectives are trained: a term that is missing, or that
// has no graph, would train nothing, and no number would say so. Called by the step.
#pragma once

#include "tanren/accumulation/loss_meter.h"
#include "tanren/train/run_state.h"

#include <vector>

#include <torch/nn/module.h>

namespace tanren {

// After a forward: ConfigError where there are no terms, where one that an objective wants is missing,
// or is no floating scalar. Reads no device.
void check_terms(const Phase& phase, const Terms& terms);

// After a forward: ConfigError where it took a .grad away, which holds the sum of the window so far.
void check_attached(const Phase& phase);

// After the window: ConfigError for a term of an objective that is above 0 and has no gradient. 0 may
// have none, as in a batch that has nothing for the term; so may a term beside another where
// parameters of the module are frozen. `sums` are those of losses.sums(), read.
void check_graphs(const Phase& phase, const torch::nn::Module& module, const LossMeter& losses,
                  const std::vector<double>& sums);

// After the first forward: ConfigError for parameters and buffers that the module did not have when the
// phases were made.
void check_grown(Phase& phase, const torch::nn::Module& module);

}  // namespace tanren
