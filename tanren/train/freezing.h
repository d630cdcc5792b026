// Freezing: which parameters are trained, and which modules stand still with them. A frozen
// parameter has no gradient, no optimizer state and no place in the gradients' buffer; a module whose
// parameters are all frozen is in eval mode, so its statistics do not move and its dropout does not draw.
// freeze() is called by build, unfreeze() by the step, before a window. Not thread-safe.
#pragma once

#include "tanren/train/run_state.h"

#include <torch/nn/module.h>

#include <string>
#include <vector>

namespace tanren {

// Freezes what options.freeze matches and no table of options.unfreeze has from step 0 on. Returns
// how many parameters. ConfigError for a pattern without a match, a table that frees nothing, or if
// nothing is left to train.
int64_t freeze(torch::nn::Module& module, const ModelOptions& options);

// Names of the modules that are frozen whole and stand still, without those inside another.
std::vector<std::string> still_modules(const torch::nn::Module& module);

// Unfreezes what `plan` trains from run.step() on: it gets a gradient and fresh optimizer state, its
// modules train again. Does nothing at other steps, and nothing twice. `tells`: logs it (one rank does).
// `ranks` that share the optimizer's state move it between them.
void unfreeze(RunState& run, const FreezePlan& plan, bool tells = true,
              Communicator* ranks = nullptr);

}  // namespace tanren
