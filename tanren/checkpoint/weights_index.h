// The index of weights in several files, as transformers writes it: a JSON file beside them
// (model.safetensors.index.json) that names the file of each tensor. Called by weights_file for any
// index, and by checkpoint, for the files that stages write.
#pragma once

#include "tanren/checkpoint/weights_file.h"

#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

// Returns the tensors of all files of the index, in the index's order. They are mapped, so only
// touched pages are read. CheckpointError if the files have other tensors than the index, or the
// same tensor twice.
WeightsFile read_index(const std::filesystem::path& path);

// Writes the index of the safetensors files `files`, which lie in its folder. Its tensors are in
// the order of `names`, which may have further names. RunError if two files have the same tensor.
void write_index(const std::filesystem::path& path, const std::vector<std::string>& files,
                 const std::vector<std::string>& names);

}  // namespace tanren
