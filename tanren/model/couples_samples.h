// Whether a model's results depend on how a batch is split. Called by what plans.
#pragma once

#include "tanren/base/task.h"

#include <torch/nn/module.h>

#include <string>

namespace tanren {

// The task's own facts; those that it leaves open are told by the types of its modules.
bool couples_samples(const Task& task);
std::string torch_dropout(const Task& task);

// True if the module contains a batch norm (tanren's or torch's, by type name). Results then differ
// between splits of a batch, and a planner must report it.
bool couples_samples(const torch::nn::Module& module);

// Name of the first torch::nn dropout inside ("drop", "blocks.0.drop"), or "the fused attention",
// which draw from torch's generator and not by sample; empty: none. Misses calls of at::dropout.
std::string torch_dropout(const torch::nn::Module& module);

}  // namespace tanren
