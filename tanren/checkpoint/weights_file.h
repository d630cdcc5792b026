// Weights as people keep them: safetensors (one file, or several with their index) and what torch.save
// wrote. One way in, whatever the file is, and one way out, by the name's extension.
#pragma once

#include "tanren/base/state.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

struct WeightsFile {
  std::string kind;  // "safetensors", "3 safetensors files", or as PtFile
  State content;
  std::vector<std::string> opaque;  // records that are no tensors, with their class
};

// Reads by content, not by extension; an index (…safetensors.index.json) stands for its files, a
// checkpoint's folder for its model, a run folder for its newest checkpoint.
// InputError naming the file for anything malformed.
WeightsFile read_weights(const std::filesystem::path& named);

struct StateDict {
  TensorMap tensors;
  std::vector<std::string> remarks;  // what was left out or stripped, in words
};

// The weights of a model among the tensors of a file: the part called model, state_dict, … of a
// training checkpoint, without the prefixes that DataParallel ("module.") and torch.compile
// ("_orig_mod.") put before every name.
StateDict state_dict_of(const WeightsFile& file);

// Names after each rename `{old, new}` in turn: a name that is `old` or begins with "old." gets `new`
// in its place (an empty `new` drops the part). CheckpointError where a rename fits no name, or
// two tensors end up with one name.
TensorMap renamed(const TensorMap& tensors,
                  const std::vector<std::pair<std::string, std::string>>& renames);

// Atomic. `.safetensors`, or `.pt`, `.pth`, `.bin` as torch.save; ConfigError for another extension.
void write_weights(const std::filesystem::path& path, const TensorMap& tensors);

}  // namespace tanren
