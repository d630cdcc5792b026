// The weights that a folder stands for: of a checkpoint, or of a run, whose export is its model until the run
// goes on. Called by weights_file, and where people are to read which weights were taken.
#pragma once

#include "tanren/checkpoint/weights_file.h"

#include <filesystem>
#include <string>

namespace tanren {

struct FolderWeights {
  std::filesystem::path file;
  std::string remark;  // which they are, where that is not plain
};
// The folder's model.safetensors; the model of its newest checkpoint where there is none, or where the run
// went on after it wrote that, which the remark then says. CheckpointError where there is neither.
FolderWeights weights_of_folder(const std::filesystem::path& folder);

// read_weights and state_dict_of, with that remark of a folder.
struct NamedWeights {
  WeightsFile file;
  StateDict state;
};
NamedWeights read_state_dict(const std::filesystem::path& path);

}  // namespace tanren
