// The best cuts of a model into stages (parallel.pipeline) by measured seconds, compared with the
// cut that a plan chooses by multiply-adds. Pure; called by anatomy/anatomy.
#pragma once

#include "tanren/anatomy/operator_recorder.h"
#include "tanren/plan/pipeline_cut.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

// The cut into `stages` stages whose slowest stage is fastest by measured seconds, and the plan's
// cut. Both ignore memory.
struct MeasuredCut {
  int64_t stages = 0;
  std::vector<std::string> cut_at, planned;  // first block of each later stage
  // Of the slowest stage: seconds of forward and backward of one step's samples.
  double slowest = 0, planned_slowest = 0;
  double ratio() const { return slowest > 0 ? planned_slowest / slowest : 1; }
};

// `model` with the recorded seconds of a step in place of its work. The seconds of a block inside
// another go to the outer one, whose path begins the inner one's. Seconds outside of blocks go to
// the last block, as the loss does.
ModelBlocks with_measured_work(ModelBlocks model, const OperatorRecording& recording);

// The cuts into 2 and 4 stages, without those that are not possible. `model` is block_profile()'s.
std::vector<MeasuredCut> measured_cuts(const ModelBlocks& model,
                                       const OperatorRecording& recording);

}  // namespace tanren
