// A whole module that Python pickled, by the name of its class: the model of ours that it is.
// Called by pretrained.
#pragma once

#include "tanren/config/run_config.h"

#include <filesystem>

namespace tanren {

// Whether `name` is a file as torch.save writes one, and no folder or name of a model.
bool is_module_file(const std::string& name);

// The kind and sizes of the module in `path`: transformers' BERT and GPT-2 by the config that they
// carry, torchvision's ResNet and VGG by their layers. Keys that `asked` gives stay. ConfigError
// for another class, or a file that holds no module.
ModelOptions options_of_module(const std::filesystem::path& path, const ModelOptions& asked);

}  // namespace tanren
