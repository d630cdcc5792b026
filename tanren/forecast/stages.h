// What each stage of a cut model holds. Called by what sets up a run in stages.
#pragma once

#include "tanren/plan/pipeline_cut.h"
#include "tanren/train/stage_plan.h"

#include <torch/nn/module.h>

#include <vector>

namespace tanren {

// One for each stage of `cut`, for replica 0 of 1. `model` is block_profile() of a task with a
// module like `module`. A stage holds the parameters that its blocks use, and those that code
// between blocks reads in its forward; a parameter that nothing reads is held by the first stage.
// Buffers go with the blocks that read them; one that no operator was seen to read goes with the
// parameters beside it in its module. ConfigError if two stages would hold a buffer that the
// forward changes.
std::vector<StagePlan> stage_plans(const ModelBlocks& model, const PipelineCut& cut,
                                   const torch::nn::Module& module);

}  // namespace tanren
