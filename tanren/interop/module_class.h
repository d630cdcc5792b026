// Maps a whole module that Python pickled to one of our models, by the name of its class. Called by
// pretrained.
#pragma once

#include "tanren/config/run_config.h"

#include <filesystem>

namespace tanren {

// Whether `name` is a file as torch.save writes it, not a folder or a model name.
bool is_module_file(const std::string& name);

// The kind and sizes of the module in `path`. transformers' BERT and GPT-2: from the config that
// they carry; torchvision's ResNet and VGG: from their layers. Keys that `asked` gives are kept.
// ConfigError for another class, or a file that holds no module.
ModelOptions options_of_module(const std::filesystem::path& path, const ModelOptions& asked);

}  // namespace tanren
