// Checks what a task's forward returns. A term that is missing, or that has no graph, would train
// nothing, and no number would show it. Called by the step.
#pragma once

#include "tanren/base/terms.h"
#include "tanren/parallel/ranks.h"
#include "tanren/train/run_state.h"

#include <string>
#include <vector>

#include <torch/nn/module.h>

namespace tanren {

// After a forward: throws ConfigError if there are no terms, or if a term that an objective wants
// is missing or is not a floating-point scalar. Reads no device.
void check_terms(const Phase& phase, const Terms& terms);

// After a forward: throws ConfigError if it changed a .grad, which holds the window's sum so far.
void check_gradients_kept(const Phase& phase);

// After the window: throws ConfigError if an objective's term is not 0 and had no gradient in any
// microbatch of any rank. A term of 0 may have no gradient, as in a batch that has nothing for the
// term. A term may also have none if another term of the objective has one and some rank has frozen
// parameters. `num_graphs` and `sums` have one entry for each of `terms`. num_graphs is the number
// of ranks that had a graph of the term in some microbatch. All arguments are the same on every
// rank, so all ranks throw together.
void check_graphs(const Phase& phase, bool some_frozen, const Ranks& ranks,
                  const std::vector<PhaseTerm>& terms, const std::vector<double>& num_graphs,
                  const std::vector<double>& sums);
// Whether some parameter of the module requires no gradient.
bool has_frozen(const torch::nn::Module& module);

// The names of the module's parameters and buffers.
std::vector<std::string> names_of(const torch::nn::Module& module);
// After the module's first forward: throws ConfigError, starting with `where`, if the module has
// parameters or buffers that are not in `names`.
void refuse_grown(const std::string& where, const torch::nn::Module& module,
                  const std::vector<std::string>& names);
// The same check after the first forward of a phase.
void check_grown(Phase& phase, const torch::nn::Module& module);

}  // namespace tanren
