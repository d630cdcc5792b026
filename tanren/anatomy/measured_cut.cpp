#include "tanren/anatomy/measured_cut.h"

#include <algorithm>

namespace tanren {

namespace {

// Name of the model's block that is or contains the recorded block. Empty if there is none.
std::string outermost(const std::string& recorded, const ModelBlocks& model) {
  std::string found;
  for (const BlockCost& block : model.blocks) {
    const bool is_in = recorded == block.name || recorded.starts_with(block.name + ".");
    if (is_in && block.name.size() > found.size()) found = block.name;
  }
  return found;
}

std::vector<std::string> names_at(const ModelBlocks& model, const PipelineCut& cut) {
  std::vector<std::string> names;
  for (const size_t place : cut) names.push_back(model.blocks[place].name);
  return names;
}

double slowest_of(const ModelBlocks& model, const PipelineCut& cut, const CutOptions& options) {
  double slowest = 0;
  for (const StageCost& stage : stage_costs(model, cut, options)) {
    slowest = std::max(slowest, stage.work());
  }
  return slowest;
}

}  // namespace

ModelBlocks with_measured_work(ModelBlocks model, const OperatorRecording& recording) {
  const auto steps = static_cast<double>(std::max<int64_t>(recording.times.steps, 1));
  for (BlockCost& block : model.blocks) block.forward = block.backward = 0;
  if (model.blocks.empty()) return model;
  for (const BlockTotal& total : recording.blocks) {
    const std::string name = outermost(total.name, model);
    std::vector<BlockCost*> passages;  // of a forward, through this block
    for (BlockCost& block : model.blocks) {
      if (block.name == name) passages.push_back(&block);
    }
    if (passages.empty()) passages = {&model.blocks.back()};
    const double parts = steps * static_cast<double>(passages.size());
    for (BlockCost* block : passages) {
      block->forward += total.forward_seconds / parts;
      block->backward += total.backward_seconds / parts;
    }
  }
  return model;
}

std::vector<MeasuredCut> measured_cuts(const ModelBlocks& model,
                                       const OperatorRecording& recording) {
  const ModelBlocks measured = with_measured_work(model, recording);
  std::vector<MeasuredCut> cuts;
  for (const int64_t stages : {2, 4}) {
    const CutOptions options{.stages = stages};
    const auto planned = cut_balanced(model, options), best = cut_balanced(measured, options);
    if (!planned || !best) continue;
    cuts.push_back({.stages = stages,
                    .cut_at = names_at(model, *best),
                    .planned = names_at(model, *planned),
                    .slowest = slowest_of(measured, *best, options),
                    .planned_slowest = slowest_of(measured, *planned, options)});
  }
  return cuts;
}

}  // namespace tanren
