// Whether a model's results depend on how a batch is split. Called by the planners of a run.
#pragma once

#include "tanren/base/task.h"

#include <torch/nn/module.h>

#include <string>

namespace tanren {

// Return the task's own fact. If the task leaves it open, the types of its modules decide.
bool couples_samples(const Task& task);
std::string torch_dropout(const Task& task);

// True if the module contains a batch norm (tanren's or torch's, by type name). Results then differ
// between splits of a batch, and a planner must report it.
bool couples_samples(const torch::nn::Module& module);

// Name of the first torch::nn dropout inside ("drop", "blocks.0.drop"), or "the fused attention".
// Both draw from torch's generator instead of by sample. Empty if there is none. Misses calls of
// at::dropout.
std::string torch_dropout(const torch::nn::Module& module);

}  // namespace tanren
