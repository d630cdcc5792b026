// config.json of Hugging Face → the config's keys of our model, and back. Called by pretrained and
// python_folder.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/config/run_config.h"

#include <filesystem>
#include <string>

namespace tanren {

// The kind and sizes that the file describes (model_type bert or gpt2), with transformers' defaults for
// what it leaves out; keys that `asked` gives stay as they are. ConfigError naming the file and the
// field for another model, or for a variant that we do not compute.
ModelOptions options_of_hf_config(const std::filesystem::path& file, const ModelOptions& asked);
// The same from its text; `name` stands in errors.
ModelOptions options_of_hf_text(const std::string& text, const std::string& name,
                                const ModelOptions& asked);

// The config.json of a bert or gpt2 of these options for data like `info`: sizes, dropouts, names of
// classes; `dtype` is torch's name of the weights'. Read back, it gives the same model.
std::string hf_config_of(const ModelOptions& model, const DataInfo& info, const std::string& dtype);

}  // namespace tanren
