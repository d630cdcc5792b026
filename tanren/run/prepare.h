// What comes before the loop of a run, shared by all verbs that make a plan. Internal to run/.
#pragma once

#include "tanren/forecast/fit_memory.h"
#include "tanren/interop/torch_state.h"
#include "tanren/train/build.h"
#include "tanren/train/registry.h"

#include <filesystem>
#include <optional>

namespace tanren {

struct Prepared {
  RunConfig config;  // with the kind and the sizes of model.from_hf
  Datasets datasets;
  Task task;
  Plan plan;
  std::optional<OptimizerStart> optimizer;  // of optimizer.init_from, where no checkpoint follows
  FitInput fit;                             // for fit()
};

// `has_weights`: a checkpoint will follow, so model.init_from is not read again, and what the run
// folder `kept` has stands for the files that the run began with. `given` stands for the config's data.
// `trains`: a model that cannot be trained in the memory there is, is refused before it is built.
Prepared prepare(const RunConfig& asked, const Registry& registry, bool has_weights,
                 const std::filesystem::path& kept, Datasets given = {}, bool trains = true);

// Everything of a step folder; of `ranks` that read it together, what this one needs.
void load_checkpoint(RunState& state, const std::filesystem::path& checkpoint,
                     const DataParallel& ranks);

// Before training: makes the plan the one that memory allows.
Fitted fit(Prepared& prepared);

// Before evaluating alone: as many threads as training has, so that the figures are the same.
void fit_threads(Prepared& prepared);

}  // namespace tanren
