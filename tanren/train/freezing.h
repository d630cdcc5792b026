// Freezing: which parameters are trained, and which modules are in eval mode because all of theirs
// are frozen. A frozen parameter has no gradient, no optimizer state and no place in the gradients'
// buffer. A module whose parameters are all frozen is in eval mode, so its statistics do not move
// and its dropout does not draw. freeze() is called by build, unfreeze() by the step before a
// window. Not thread-safe.
#pragma once

#include "tanren/train/run_state.h"

#include <torch/nn/module.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tanren {

// Freezes the parameters that options.freeze matches, except those that a table of options.unfreeze
// frees at step 0. A pattern matches a parameter by any of its names. Returns how many it froze.
// Throws ConfigError for a pattern without a match, for a table that unfreezes nothing, or if
// nothing is left to train. A pattern may also match a scale that quantisation-aware training could
// give to a layer's input (quantized_names.h); check_freezing later checks whether that scale
// exists.
int64_t freeze(torch::nn::Module& module, const ModelOptions& options);

// Throws ConfigError for a pattern of freeze or unfreeze that matches no parameter of the module,
// and for a table that unfreezes nothing. `led`: scales that are frozen and unfrozen together with
// their weights. A table that names only led scales unfreezes nothing.
void check_freezing(const torch::nn::Module& module, const ModelOptions& options,
                    const std::set<std::string>& led = {});

// Whether the scale of this name is trained from the start. Empty if it is frozen and unfrozen with
// its weight, whose names are `weight`. There is a value only if a pattern of options.freeze
// matches the scale and not the weight.
std::optional<bool> trains_scale_alone(const ModelOptions& options, const std::string& scale,
                                       const std::vector<std::string>& weight);

// Names of the outermost modules that are frozen whole and in eval mode.
std::vector<std::string> still_modules(const torch::nn::Module& module);

// Unfreezes what `plan` trains from run.step() on: each parameter gets a gradient and fresh
// optimizer state, and its modules train again. Does nothing at other steps, or if it is called
// again at the same step. `tells`: this rank logs it. `ranks`: must be given if ranks share the
// optimizer's state, which they then exchange.
void unfreeze(RunState& run, const FreezePlan& plan, bool tells = true,
              Communicator* ranks = nullptr);

}  // namespace tanren
