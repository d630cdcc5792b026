// Writes a whole model as a folder that Python opens: bert and gpt2 for Hugging Face's
// from_pretrained, pix2pixhd for NVIDIA's code, the other kinds as a state_dict for torchvision and
// torch.nn with a description next to it. Called by `tanren convert`.
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
  std::vector<std::string> remarks;  // which weights, and what Python's model cannot express
};

// The whole model's file for `path`: `path` itself, or the file in that run folder. ConfigError if
// the folder has none because its run is not finished.
std::filesystem::path whole_file_of(const std::filesystem::path& path);

// Writes the model of `path` (a whole model's file, or a run folder with the weights that
// weights_of_folder picks) to `folder`, which is created and must be empty. bert, gpt2:
// config.json, model.safetensors and the tokenizer's files. pix2pixhd: latest_net_G.pth and
// latest_net_D.pth. A package with a config.json: that and model.safetensors; its code is not
// loaded. Other kinds: model.pth (state_dict) and architecture.json. Floating tensors are cast to
// `dtype` if it is given. 8-bit weights are expanded to fp32, except for a bert's linear layers,
// which stay int8 (compressed_tensors.h); a remark says so. ConfigError for a folder that is not
// empty, and as load_model.
PythonFolder write_python_folder(const std::filesystem::path& path,
                                 const std::filesystem::path& folder,
                                 std::optional<at::ScalarType> dtype, const Registry& registry);

}  // namespace tanren
