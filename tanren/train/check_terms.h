// What a task's forward must give so that its objectives are trained: a term that is missing, or that
// has no graph, would train nothing, and no number would say so. Called by the step.
#pragma once

#include "tanren/base/terms.h"
#include "tanren/parallel/data_parallel.h"
#include "tanren/train/run_state.h"

#include <string>
#include <vector>

#include <torch/nn/module.h>

namespace tanren {

// After a forward: ConfigError where there are no terms, where one that an objective wants is missing,
// or is no floating scalar. Reads no device.
void check_terms(const Phase& phase, const Terms& terms);

// After a forward: ConfigError where it changed a .grad, which holds the sum of the window so far.
void check_gradients_kept(const Phase& phase);

// After the window: ConfigError for a term of an objective that is not 0 and has no gradient in any
// microbatch of any rank. 0 may have none, as in a batch that has nothing for the term; so may a term
// beside another where parameters of the module are frozen. `has_graph` and `sums`, one each for
// `names`, are the same on every rank: all throw alike.
void check_graphs(const Phase& phase, const torch::nn::Module& module, const DataParallel& parallel,
                  const std::vector<std::string>& names, const std::vector<bool>& has_graph,
                  const std::vector<double>& sums);

// The module's parameters and buffers.
std::vector<std::string> names_of(const torch::nn::Module& module);
// After its first forward: ConfigError, which begins with `where`, for those that it did not have among
// `names`.
void refuse_grown(const std::string& where, const torch::nn::Module& module,
                  const std::vector<std::string>& names);
// The same after the first forward of a phase.
void check_grown(Phase& phase, const torch::nn::Module& module);

}  // namespace tanren
