// StagePlan: what one rank holds of a model that is cut into stages, and its place in the mesh: the
// blocks that it runs, and which stages hold each parameter and buffer. A tensor of several stages
// (tied embeddings) is held by all of them and owned by the first. Invariant: apart from `blocks`,
// `stage` and `replica` it is the same on every rank. Made by forecast/stages; Parts has it.
#pragma once

#include "tanren/base/pipeline_schedule.h"
#include "tanren/blocks/stage.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace tanren {

struct StagePlan {
  StageBlocks blocks;                          // with this stage's place among them
  std::vector<std::string> first_blocks = {};  // the first block of each stage
  int64_t stage = 0;
  int64_t replica = 0, replicas = 1;  // of every stage
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  // The stages, in rising order, that hold a parameter or buffer, by its name. All stages hold one
  // without an entry.
  std::map<std::string, std::vector<int64_t>> holders = {};

  int64_t stages() const { return static_cast<int64_t>(first_blocks.size()); }
  bool is_last() const { return stage + 1 == stages(); }
  std::vector<int64_t> holders_of(const std::string& name) const;
  bool holds(const std::string& name) const;
  bool owns(const std::string& name) const;
  // Held by several stages.
  bool is_tied(const std::string& name) const { return holders_of(name).size() > 1; }
};

// Frees the memory of the parameters and buffers that this stage does not hold. They keep their
// names, shapes, dtypes and flags; code that reads their values throws an error that says why.
void drop_others(const torch::nn::Module& module, const StagePlan& plan);

}  // namespace tanren
