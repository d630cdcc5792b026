// config.json of Hugging Face → the config's keys of our model. Called by pretrained.
#pragma once

#include "tanren/config/run_config.h"

#include <filesystem>

namespace tanren {

// The kind and sizes that the file describes (model_type bert or gpt2), with transformers' defaults for
// what it leaves out; keys that `asked` gives stay as they are. ConfigError naming the file and the
// field for another model, or for a variant that we do not compute.
ModelOptions options_of_hf_config(const std::filesystem::path& file, const ModelOptions& asked);

}  // namespace tanren
