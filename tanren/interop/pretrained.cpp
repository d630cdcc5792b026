#include "tanren/interop/pretrained.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/weights_file.h"
#include "tanren/config/validate.h"
#include "tanren/interop/hf_config.h"
#include "tanren/interop/module_class.h"

#include <algorithm>
#include <utility>

namespace tanren {

namespace {

bool replace_end(std::string& name, std::string_view end, std::string_view by) {
  if (!name.ends_with(end)) return false;
  name.replace(name.size() - end.size(), end.size(), by);
  return true;
}

// Puts `prefix` before every name if `inner` exists without it: the file holds the base model
// alone.
TensorMap with_base(const TensorMap& tensors, const std::string& prefix, const std::string& inner) {
  if (tensors.find(inner) == nullptr) return tensors;
  TensorMap all;
  for (const auto& [name, tensor] : tensors) all.set(prefix + name, tensor);
  return all;
}

// Removes what transformers' files hold besides the parameters: tied copies, causal masks,
// positions.
TensorMap bert_names(const TensorMap& tensors) {
  TensorMap all;
  for (const auto& [given, tensor] : tensors) {
    std::string name = given;
    replace_end(name, "LayerNorm.gamma", "LayerNorm.weight");  // TensorFlow's names
    replace_end(name, "LayerNorm.beta", "LayerNorm.bias");
    if (name.ends_with("embeddings.position_ids")) continue;
    if (name == "cls.predictions.decoder.weight") continue;
    if (name == "cls.predictions.decoder.bias") {
      name = "cls.predictions.bias";
      if (tensors.find(name) != nullptr) continue;
    }
    all.set(name, tensor);
  }
  return with_base(all, "bert.", "embeddings.word_embeddings.weight");
}

TensorMap gpt2_names(const TensorMap& tensors) {
  TensorMap all;
  for (const auto& [name, tensor] : tensors) {
    if (name == "lm_head.weight") continue;
    if (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")) continue;
    all.set(name, tensor);
  }
  return with_base(all, "transformer.", "wte.weight");
}

// Parts that belong to one use of a model and not to others.
std::vector<std::string> heads_of(const std::string& kind) {
  if (kind == "bert") return {"classifier.*", "cls.*", "bert.pooler.*", "qa_outputs.*"};
  if (kind == "gpt2") return {"score.*", "classifier.*", "multiple_choice_head.*"};
  return {};
}

}  // namespace

void check_resolved(const ModelOptions& resolved, ModelOptions asked) {
  RunConfig config;
  asked.kind = resolved.kind;
  asked.task = resolved.task;
  config.model = std::move(asked);
  std::vector<std::string> of_model;
  for (auto& problem : validate(config, {resolved.kind})) {
    if (problem.starts_with("model.")) of_model.push_back(std::move(problem));
  }
  if (!of_model.empty()) throw ConfigError("[config] " + join(of_model, "; "));
}

Pretrained resolve_model(const ModelOptions& options, const HubCaches& caches) {
  if (options.from_hf.empty()) return {options, {}};
  const bool is_file = is_module_file(options.from_hf);
  const HubModel found =
      is_file ? HubModel{"", "", options.from_hf} : find_hub_model(options.from_hf, caches);
  Pretrained pretrained{options, found.weights};
  if (is_file) {
    pretrained.model = options_of_module(options.from_hf, options);
  } else if (found.folder.empty()) {
    pretrained.model.kind = found.kind;
    pretrained.model.size = options.from_hf;
  } else {
    pretrained.model = options_of_hf_config(found.folder / "config.json", options);
  }
  if (!options.kind.empty() && options.kind != pretrained.model.kind) {
    throw ConfigError(
        fmt::format("[model] from_hf \"{}\" is a {}, and model.kind is \"{}\"; drop model.kind",
                    options.from_hf, pretrained.model.kind, options.kind));
  }
  check_resolved(pretrained.model, options);
  return pretrained;
}

InitReport init_from_pretrained(torch::nn::Module& module, const Pretrained& pretrained) {
  const std::string& kind = pretrained.model.kind;
  StateDict state = state_dict_of(read_weights(pretrained.weights));
  if (kind == "bert") state.tensors = bert_names(state.tensors);
  if (kind == "gpt2") state.tensors = gpt2_names(state.tensors);
  std::vector<std::string> heads = heads_of(kind);
  for (auto& pattern : appended_heads(pretrained.model)) heads.push_back(std::move(pattern));
  return init_from_state(module, std::move(state), pretrained.model, pretrained.weights.string(),
                         heads);
}

std::string initialise(const Task& task, const Pretrained& source, bool has_weights) {
  const ModelOptions& options = source.model;
  if (options.init_from.empty() && options.from_hf.empty()) return "";
  if (has_weights) return "the checkpoint's weights replace them";
  if (!options.from_hf.empty()) {
    return init_from_pretrained(*task.module, source).text(source.weights.string());
  }
  return init_from_file(*task.module, options).text(options.init_from);
}

}  // namespace tanren
