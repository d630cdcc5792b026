// Reads and writes weight files: safetensors (one file, or several with their index) and files of
// torch.save. One function reads any of them; one function writes, in the format of the extension.
#pragma once

#include "tanren/base/state.h"

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

struct WeightsFile {
  std::string kind;  // "safetensors", "3 files by their index", or as PtFile
  State content;
  std::vector<std::string> opaque;  // records that are neither tensors nor values, with their class
  std::map<std::string, std::string> metadata = {};  // of one safetensors file
};

// Recognises the format by content, not by extension. An index (…safetensors.index.json) stands for
// its files, a checkpoint's folder for its model, a run folder for the weights that
// weights_of_folder picks (folder_weights.h). InputError naming the file for anything malformed.
WeightsFile read_weights(const std::filesystem::path& named);

struct StateDict {
  TensorMap tensors;
  std::vector<std::string> remarks;  // what was left out or stripped, in words
};

// Finds a model's weights among the tensors of a file: the part called model, state_dict, … of a
// training checkpoint, without the prefixes that DataParallel ("module.") and torch.compile
// ("_orig_mod.") put before every name.
StateDict state_dict_of(const WeightsFile& file);

// Applies each rename `{old, new}` in turn: in a name that is `old` or begins with "old.", `new`
// replaces that part (an empty `new` drops it). CheckpointError if a rename fits no name, or if two
// tensors end up with the same name.
TensorMap renamed(const TensorMap& tensors,
                  const std::vector<std::pair<std::string, std::string>>& renames);

// Atomic. Writes `.safetensors`, or `.pt`, `.pth`, `.bin` as torch.save does. ConfigError for
// another extension.
void write_weights(const std::filesystem::path& path, const TensorMap& tensors);

}  // namespace tanren
