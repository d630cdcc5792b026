// Translates Hugging Face's config.json to the config keys of our model, and back. Called by
// pretrained, module_class and python_folder.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/config/run_config.h"

#include <filesystem>
#include <string>

namespace tanren {

// The kind and sizes that the file describes (model_type bert or gpt2), with transformers' defaults
// for missing fields. Keys that `asked` gives are kept. ConfigError naming the file and the field
// for another model, or for a variant that we do not compute.
ModelOptions options_of_hf_config(const std::filesystem::path& file, const ModelOptions& asked);
// The same from the file's text; errors name it `name`.
ModelOptions options_of_hf_text(const std::string& text, const std::string& name,
                                const ModelOptions& asked);

// The config.json of a bert or gpt2 with these options for data like `info`: sizes, dropouts, class
// names. `dtype` is torch's name of the weights' dtype. Read back, it gives the same model.
std::string hf_config_of(const ModelOptions& model, const DataInfo& info, const std::string& dtype);

}  // namespace tanren
