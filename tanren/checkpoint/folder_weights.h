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
// Returns the folder's model.safetensors, or the index of its parts. Returns the newest
// checkpoint's model instead if there is no such file, or if the run continued after it wrote the
// file; the remark reports the latter. CheckpointError if the folder has neither the file nor a
// checkpoint.
FolderWeights weights_of_folder(const std::filesystem::path& folder);

// The results of read_weights and state_dict_of. For a folder, FolderWeights::remark is the first
// of state.remarks.
struct NamedWeights {
  WeightsFile file;
  StateDict state;
};
NamedWeights read_state_dict(const std::filesystem::path& path);

}  // namespace tanren
