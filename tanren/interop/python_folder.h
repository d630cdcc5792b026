// A whole model as a folder that Python opens: what Hugging Face's from_pretrained reads (bert, gpt2), or
// a state_dict for torchvision and torch.nn with a description beside it (the other kinds).
// Called by `tanren convert`.
#pragma once

#include "tanren/train/registry.h"

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct PythonFolder {
  std::string opened_by;  // the line of Python that opens it
  std::vector<std::string> files;
  std::vector<std::string> remarks;  // which weights, and what Python's model has no word for
};

// The whole model's file that `path` means: itself, or the one in a run folder. ConfigError where a
// folder has none, because its run is not finished.
std::filesystem::path whole_file_of(const std::filesystem::path& path);

// Writes the model of `path`, a whole model's or a run folder (with the weights that this means:
// weights_of_folder), to `folder`, which is made and must be empty. bert, gpt2:
// config.json, model.safetensors and the tokenizer's files; else model.pth (state_dict) and
// architecture.json. Floating tensors in `dtype` where it is given. ConfigError for a folder that
// holds something, and as load_model.
PythonFolder write_python_folder(const std::filesystem::path& path,
                                 const std::filesystem::path& folder,
                                 std::optional<at::ScalarType> dtype, const Registry& registry);

}  // namespace tanren
