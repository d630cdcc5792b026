// Files that torch.save wrote (.pt, .pth, .bin): the zip format, the one before torch 1.6, and the
// archives of TorchScript and of C++ torch::save. Tensors are views of the mapped file, so reading
// costs no copy; tied tensors share their storage. Nothing in the file is executed: classes are
// names, of which those that build tensors are known here and the others are opaque records.
#pragma once

#include "tanren/base/state.h"
#include "tanren/formats/pt_value.h"

#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

struct PtFile {
  // "state_dict", "checkpoint", "module of class …", "TorchScript archive".
  std::string kind;
  // Tensors by their path in the file ("model.layer1.0.weight"), in its order, and plain numbers,
  // truths and texts likewise ("epoch"). A module's weights have the names of its state_dict;
  // the values are those of its config, where it has one ("config.hidden_size").
  State content;
  std::vector<std::string> opaque;  // paths of records that are neither, with their class
};

// CheckpointError naming the file for anything malformed, truncated or hostile: no tensor reaches
// outside its storage, no storage outside the file.
PtFile read_pt(const std::filesystem::path& path);

// Writes a state_dict that torch.load(path, weights_only=True) opens, atomically. Tensors may be on
// any device and strided; they are written contiguous, and tied ones (the same elements) once.
void write_pt(const std::filesystem::path& path, const TensorMap& tensors);
// The same for a nested checkpoint.
void write_pt(const std::filesystem::path& path, const PtValue& document);

}  // namespace tanren
