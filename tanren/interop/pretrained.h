// model.from_hf: a model that was trained elsewhere, from its folder or from a cache of downloads.
// It gives the model's kind and sizes, and its weights replace the initial ones. Called by run.
#pragma once

#include "tanren/base/task.h"
#include "tanren/interop/hub.h"
#include "tanren/interop/transfer.h"

#include <torch/nn/module.h>

#include <filesystem>

namespace tanren {

struct Pretrained {
  ModelOptions model;             // with kind and sizes
  std::filesystem::path weights;  // empty without from_hf
};

// The model that `options` describe; unchanged if from_hf is empty. ConfigError as find_hub_model
// and options_of_hf_config, or if model.kind names another kind.
Pretrained resolve_model(const ModelOptions& options, const HubCaches& caches = hub_caches());

// Checks the keys that depend on the kind, after from_hf has given it. ConfigError for keys of
// `asked` that the kind of `resolved` does not read.
void check_resolved(const ModelOptions& resolved, ModelOptions asked);

// Copies the weights into the module that was made from pretrained.model. Handles old names, a
// missing base prefix and tied copies. A head that the file lacks keeps its initial values; a head
// that the module lacks stays in the file; the report lists both. Otherwise as init_from_file.
InitReport init_from_pretrained(torch::nn::Module& module, const Pretrained& pretrained);

// Loads the weights of model.init_from or from_hf (unless a checkpoint's will follow); returns
// where they come from.
std::string initialise(const Task& task, const Pretrained& source, bool has_weights);

}  // namespace tanren
