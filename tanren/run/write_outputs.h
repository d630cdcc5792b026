// Writes a model's output for each sample of an evaluation as a PNG file, named like the sample's
// own file. For tasks whose outputs are pictures. Ranks write their own samples into the same
// folder. Called by evaluate_checkpoint and evaluate_whole_model.
#pragma once

#include "tanren/data/dataset.h"
#include "tanren/parallel/ranks.h"
#include "tanren/train/evaluate.h"

#include <filesystem>

namespace tanren {

// Rank 0 makes the folder. ConfigError on all ranks if it holds anything, if the task's outputs are
// no pictures, or if the samples' names are not unique below the folder. The returned function
// writes whole files or none; `dataset` must outlive it. Empty for an empty folder name.
SeePrediction outputs_writer(const std::filesystem::path& folder, const Dataset& dataset,
                             const Task& task, const Ranks& ranks);

}  // namespace tanren
