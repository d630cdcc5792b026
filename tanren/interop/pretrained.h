// model.from_hf: a model that somebody else trained, from its folder or from a cache of downloads. Its
// kind and sizes come from there, its weights replace the initial ones. Called by run.
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

// What `options` stand for: themselves where from_hf is empty. ConfigError as find_hub_model and
// options_of_hf_config, or where model.kind names another kind.
Pretrained resolve_model(const ModelOptions& options, const HubCaches& caches = hub_caches());

// What the config's check could not see before the kind was known. ConfigError for keys of `asked` that
// the kind of `resolved` does not read.
void check_resolved(const ModelOptions& resolved, ModelOptions asked);

// Copies the weights into the module that was made of pretrained.model. Old names, a missing base
// prefix and tied copies are seen to. A head that the file lacks is initialised anew, one that the
// module lacks stays in the file; both are said. Otherwise as init_from_file.
InitReport init_from_pretrained(torch::nn::Module& module, const Pretrained& pretrained);

// Weights of model.init_from or from_hf (unless a checkpoint's will follow); says where they come from.
std::string initialise(const Task& task, const Pretrained& source, bool has_weights);

}  // namespace tanren
