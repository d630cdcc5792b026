// Files that torch.save wrote (.pt, .pth, .bin): the zip format, the format before torch 1.6, and
// the archives of TorchScript and of C++ torch::save. Tensors are views of the mapped file, so
// reading makes no copy; tied tensors share their storage. Nothing in the file is executed: classes
// are only names. Classes that build tensors are known here; objects of all others become opaque
// records.
#pragma once

#include "tanren/base/state.h"
#include "tanren/formats/pt_value.h"

#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

struct PtFile {
  // "state_dict", "checkpoint", "tensor", "module of class …", "TorchScript archive".
  std::string kind;
  // Tensors by their path in the file ("model.layer1.0.weight"), in the file's order, and plain
  // numbers, booleans and texts by their path ("epoch"). A module's weights have the names of its
  // state_dict; its values are those of its config, if it has one ("config.hidden_size").
  State content;
  std::vector<std::string> opaque;  // paths of all other records, with their class
};

// CheckpointError naming the file for anything malformed, truncated or hostile. No tensor reaches
// outside its storage, and no storage outside the file.
PtFile read_pt(const std::filesystem::path& path);

// Atomically writes a state_dict that torch.load(path, weights_only=True) opens. Tensors may be on
// any device and strided; they are written contiguous. Tied tensors (the same elements) are written
// once if they are contiguous and on the CPU. InputError as write_safetensors.
void write_pt(const std::filesystem::path& path, const TensorMap& tensors);
// The same for a nested checkpoint.
void write_pt(const std::filesystem::path& path, const PtValue& document);

}  // namespace tanren
