// The parameters and buffers that each stage of a cut model holds. Called by code that sets up a
// run in stages.
#pragma once

#include "tanren/plan/pipeline_cut.h"
#include "tanren/train/stage_plan.h"

#include <torch/nn/module.h>

#include <vector>

namespace tanren {

// The plan of each stage of `cut`, for replica 0 of 1. `model` is block_profile() of a task with a
// module like `module`. A stage holds the parameters that its blocks use, and those that code
// between blocks reads in its forward. The first stage holds a parameter that nothing reads. A
// stage holds the buffers that its blocks read. A buffer that no operator reads goes with the
// parameters of the same module. ConfigError if two stages would hold a buffer that the forward
// changes.
std::vector<StagePlan> stage_plans(const ModelBlocks& model, const PipelineCut& cut,
                                   const torch::nn::Module& module);

}  // namespace tanren
