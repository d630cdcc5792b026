// Whether a module mixes the samples of a batch. Called by run/profile.
#pragma once

#include <torch/nn/module.h>

namespace tanren {

// True if a batch norm (ours or torch's, by type name) is inside: then equality over splits of the
// batch does not hold, and a planner must say so.
bool couples_samples(const torch::nn::Module& module);

}  // namespace tanren
