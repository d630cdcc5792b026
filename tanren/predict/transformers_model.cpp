// A classifier of texts, or a gpt2 that predicts tokens, from a folder of transformers: sizes and
// classes from config.json, the longest text from its positions, the tokenizer beside it.
#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/weights_file.h"
#include "tanren/data/text/source_tokenizer.h"
#include "tanren/data/text/tokenizer.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/interop/pretrained.h"
#include "tanren/model/init.h"
#include "tanren/predict/described_model.h"
#include "tanren/train/build.h"

#include <nlohmann/json.hpp>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

namespace tanren {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;

// The folder, and the verb that asks for it.
struct HubFolder {
  const fs::path& path;
  const std::string& verb;

  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError("[" + verb + "] " + path.string() + ": " + what);
  }
};

Json config_json(const HubFolder& folder) {
  Json json = parse_json(read_file(folder.path / "config.json"));
  if (!json.is_object()) folder.refuse("its config.json is no JSON object");
  return json;
}

std::string text_at(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

// The names of outputs 0, 1, …, as id2label has them.
std::vector<std::string> output_names(const Json& json, const HubFolder& folder) {
  const auto names = json.find("id2label");
  if (names == json.end() || !names->is_object() || names->empty()) {
    return {"LABEL_0", "LABEL_1"};  // transformers' default
  }
  std::vector<std::string> all(names->size());
  for (const auto& [number, name] : names->items()) {
    const bool is_number = !number.empty() && std::all_of(number.begin(), number.end(), [](char c) {
      return c >= '0' && c <= '9';
    });
    const size_t index = is_number && number.size() < 9 ? std::stoul(number) : all.size();
    if (index >= all.size() || !name.is_string()) {
      folder.refuse("id2label of its config.json does not number the classes from 0");
    }
    all[index] = name.get<std::string>();
  }
  return all;
}

// The longest text: what the tokenizer says, at most as many tokens as the model has positions.
int64_t context_of(const fs::path& folder, int64_t positions) {
  std::error_code none;
  const fs::path file = folder / "tokenizer_config.json";
  if (!fs::exists(file, none)) return positions;
  const Json json = parse_json(read_file(file));
  const auto length = json.is_object() ? json.find("model_max_length") : json.end();
  // transformers writes 1e30 where there is no limit.
  if (length == json.end() || !length->is_number_integer()) return positions;
  const auto most = length->get<int64_t>();
  return most > 0 ? std::min(most, positions) : positions;
}

// The class of transformers that config.json names; empty: none.
std::string architecture_of(const Json& json) {
  const auto classes = json.find("architectures");
  const bool named = classes != json.end() && classes->is_array() && !classes->empty() &&
                     classes->front().is_string();
  return named ? classes->front().get<std::string>() : "";
}

bool has_tokenizer(const fs::path& folder) {
  std::error_code none;
  for (const char* name : {"tokenizer.json", "vocab.txt", "vocab.json"}) {
    if (fs::exists(folder / name, none)) return true;
  }
  return false;
}

// Classes or values of a text.
void describe_classifier(const Json& json, const HubFolder& folder, RunConfig& config,
                         DataInfo& info) {
  const std::string problem = text_at(json, "problem_type");
  const auto names = output_names(json, folder);
  // As in transformers' pipeline, a single output or independent outputs (multi-label) become
  // probabilities by the sigmoid, except in a regression.
  const bool is_regression = problem == "regression";
  info.class_labels = !is_regression && problem != "multi_label_classification" && names.size() > 1;
  config.model.loss = info.class_labels ? "cross_entropy" : is_regression ? "mse" : "bce";
  if (!info.class_labels) config.evaluate.metrics.clear();
  info.outputs = std::ssize(names);
  info.class_names = names;
  info.tokenizer = std::make_shared<const TokenizerFiles>(read_tokenizer_files(folder.path));
  info.vocab_size = load_tokenizer(*info.tokenizer, folder.path)->vocab_size();
  const int64_t context = context_of(folder.path, config.model.context_length);
  info.input_shape = {context};
  config.data.train.kind = "text_table";
  config.data.train.tokenizer = "-";
  config.data.train.context = context;
  config.data.train.label_type = info.class_labels ? "class" : "value";
}

// The next token of a text; without a tokenizer, of token numbers.
void describe_language_model(const HubFolder& folder, RunConfig& config, DataInfo& info) {
  SourceOptions& data = config.data.train;
  data.kind = "tokens";
  data.context = config.model.context_length;
  data.vocab_size = config.model.vocab_size;
  if (has_tokenizer(folder.path)) data.tokenizer = folder.path.string();
  SourceOptions any_size = data;
  any_size.vocab_size = 0;  // the tokenizer may have more tokens than the model
  info = token_info(any_size, folder.verb);
  if (data.vocab_size > 0) info.vocab_size = info.outputs = data.vocab_size;
}

// config.json is untrusted: throws if it asks for more layers or numbers than the weights file can
// fill, before memory is allocated for them.
void refuse_beyond_file(const ModelDescription& description, const Pretrained& pretrained,
                        const HubFolder& folder, const Registry& registry) {
  const TensorMap tensors = state_dict_of(read_weights(pretrained.weights)).tensors;
  const ModelOptions& options = description.config.model;
  if (options.num_layers > static_cast<int64_t>(tensors.size())) {
    folder.refuse(
        fmt::format("its config.json asks for {} layers, and its weights have {} "
                    "tensors; they do not belong together",
                    options.num_layers, tensors.size()));
  }
  int64_t there = 0, asked = 0;
  for (const auto& [name, tensor] : tensors) there += tensor.numel();
  try {
    const DryScope without_memory;
    const Task dry = registry.models.make(options, description.info);
    for (const auto& [name, tensor] : tensors_of(*dry.module)) asked += tensor.numel();
  } catch (const c10::Error&) {
    folder.refuse("its config.json asks for impossible sizes");
  }
  // Tied weights are in the file once; positions and masks are in the module alone.
  if (asked / 2 <= there + (int64_t{1} << 20)) return;
  folder.refuse(
      fmt::format("its config.json asks for {} numbers, and its weights have {}; "
                  "they do not belong together",
                  asked, there));
}

}  // namespace

DescribedModel transformers_model(const fs::path& path, const std::vector<std::string>& sets,
                                  const Registry& registry, const std::string& verb) {
  const HubFolder folder{path, verb};
  const Json json = config_json(folder);
  const std::string name = architecture_of(json);
  const bool is_classifier = name.ends_with("ForSequenceClassification");
  const bool is_gpt2 = text_at(json, "model_type") == "gpt2";
  if (!is_classifier && !(is_gpt2 && name.ends_with("LMHeadModel"))) {
    folder.refuse(
        "its config.json names neither a class that ends in ForSequenceClassification nor "
        "GPT2LMHeadModel, and other folders are not read; give the run folder or the "
        "model.tanren.safetensors");
  }
  RunConfig config;
  config.run.name = verb;
  config.run.steps = 1;
  config.model.from_hf = fs::absolute(path).string();
  config.model.task = is_gpt2 ? (is_classifier ? "classify" : "next_token") : "";
  const Pretrained pretrained = resolve_model(config.model);
  config.model = pretrained.model;
  config.precision.mode = "fp32";  // as transformers computes, whatever the CPU has
  DataInfo info;
  if (is_classifier) {
    describe_classifier(json, folder, config, info);
  } else {
    describe_language_model(folder, config, info);
  }
  config.data.train.path = "-";
  const fs::path file = path / "config.json";
  DescribedModel model;
  model.name = path.string();
  model.description =
      description_of(describe_model(config, info, kManySamples), file, sets, registry.known());
  refuse_beyond_file(model.description, pretrained, folder, registry);
  const NoInitScope no_init;
  const Task task = registry.models.make(model.description.config.model, model.description.info);
  const at::NoGradGuard no_grad;
  const InitReport report = init_from_pretrained(*task.module, pretrained);
  if (!report.skipped.empty()) {
    folder.refuse("its weights lack " + report.skipped.front() +
                  ", so that it would answer by chance; give a trained classifier");
  }
  model.read.tensors = tensors_of(*task.module);
  model.weights = "the weights of " + pretrained.weights.string();
  return model;
}

}  // namespace tanren
