// The index of weights in several files, as transformers writes it: a JSON file beside them
// (model.safetensors.index.json) that names the file of each tensor. Called by weights_file for any
// index, and by checkpoint, for the files that stages write.
#pragma once

#include "tanren/checkpoint/weights_file.h"

#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

// The tensors of all files of the index, in its order; mapped, so read where they are touched.
// CheckpointError if the files have other tensors than the index, or one of them twice.
WeightsFile read_index(const std::filesystem::path& path);

// Writes the index of the safetensors files `files` in its folder; the tensors in the order of
// `names`, which may have more. RunError if two files have the same tensor.
void write_index(const std::filesystem::path& path, const std::vector<std::string>& files,
                 const std::vector<std::string>& names);

}  // namespace tanren
