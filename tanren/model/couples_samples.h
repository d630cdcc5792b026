// What in a module makes numbers depend on the split of a batch. Called by run/profile.
#pragma once

#include <torch/nn/module.h>

#include <string>

namespace tanren {

// True if a batch norm (ours or torch's, by type name) is inside: then equality over splits of the
// batch does not hold, and a planner must say so.
bool couples_samples(const torch::nn::Module& module);

// Name of the first torch::nn dropout inside ("drop", "blocks.0.drop"), which draws from torch's
// generator and not by sample; empty if there is none. Calls of at::dropout are not seen.
std::string torch_dropout(const torch::nn::Module& module);

}  // namespace tanren
