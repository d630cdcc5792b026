// Continues a prompt with a trained language model, as [generate] says, without data. It is `tanren
// generate` without printing.
#pragma once

#include "tanren/run/sample.h"
#include "tanren/train/registry.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct GenerateInput {
  std::filesystem::path model;         // run folder, whole model, or folder of transformers
  std::optional<std::string> prompt;   // instead of generate.prompt
  std::vector<std::string> sets = {};  // as on the command line
  SeeText see = {};                    // gets the text as it comes, on rank 0
};

struct GenerateOutput {
  std::string text;     // prompt and continuation
  std::string weights;  // that wrote it: "the weights of runs/a/model.tanren.safetensors, step 400"
  bool is_first = true;  // this process is rank 0
};

// ConfigError if the model writes no text, for a prompt longer than the model reads at once, and
// for a text prompt if the model has no tokenizer; else errors as described_model.
GenerateOutput generate_text(const GenerateInput& input, const Registry& registry);

}  // namespace tanren
