// Chooses the weights of a folder: of a checkpoint, or of a run. The export of a run is its model
// until the run continues. Called by weights_file, and by code that reports the chosen weights.
#pragma once

#include "tanren/checkpoint/weights_file.h"

#include <filesystem>
#include <string>

namespace tanren {

struct FolderWeights {
  std::filesystem::path file;
  std::string remark;  // which weights they are, if that is not obvious; else empty
};
// The folder's model.safetensors, or the index of its parts. The model of the newest checkpoint
// instead, if there is no such file or the run continued after it wrote it; the remark then reports
// that the run continued. CheckpointError if there is neither.
FolderWeights weights_of_folder(const std::filesystem::path& folder);

// read_weights and state_dict_of; for a folder, FolderWeights::remark comes first in state.remarks.
struct NamedWeights {
  WeightsFile file;
  StateDict state;
};
NamedWeights read_state_dict(const std::filesystem::path& path);

}  // namespace tanren
