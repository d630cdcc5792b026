// The model that tanren predict is given, in any of its forms, as one description and weights.
#pragma once

#include "tanren/formats/safetensors.h"
#include "tanren/interop/whole_model.h"

#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

struct DescribedModel {
  ModelDescription description;
  SafetensorsFile read;  // weights; metadata with step and kind of weights
  std::string name;      // of the file or folder, for messages
};

// `path` is a whole model's file; a run folder: its exported model, or, while the run goes on, its
// best checkpoint, else its newest (evaluate.checkpoint names another); or a folder of
// transformers with a classifier of texts (bert, gpt2) and its tokenizer. `sets` change keys of the
// description. ConfigError for anything else; errors as description_of, read_checkpoint and
// resolve_model.
DescribedModel described_model(const std::filesystem::path& path,
                               const std::vector<std::string>& sets, const Registry& registry);

// A folder that transformers opens, as described_model. One file: transformers_model.cpp.
DescribedModel transformers_model(const std::filesystem::path& folder,
                                  const std::vector<std::string>& sets, const Registry& registry);

}  // namespace tanren
