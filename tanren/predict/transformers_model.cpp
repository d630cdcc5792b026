// A classifier of texts from a folder of transformers: sizes and classes from config.json, the
// longest text from its positions, the tokenizer beside it.
#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/weights_file.h"
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

constexpr int64_t kManySamples = int64_t{1} << 20;  // that it was trained on: unknown, and not read

[[noreturn]] void refuse_folder(const fs::path& folder, const std::string& what) {
  throw ConfigError("[predict] " + folder.string() + ": " + what);
}

Json config_json(const fs::path& folder) {
  Json json = parse_json(read_file(folder / "config.json"));
  if (!json.is_object()) refuse_folder(folder, "its config.json is no JSON object");
  return json;
}

std::string text_at(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

// The names of outputs 0, 1, …, as id2label has them.
std::vector<std::string> output_names(const Json& json, const fs::path& folder) {
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
      refuse_folder(folder, "id2label of its config.json does not number the classes from 0");
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

bool is_classifier(const Json& json) {
  const auto classes = json.find("architectures");
  const bool named = classes != json.end() && classes->is_array() && !classes->empty() &&
                     classes->front().is_string();
  return named && classes->front().get<std::string>().ends_with("ForSequenceClassification");
}

// config.json is untrusted: no layer and no byte is made that the file of weights has nothing for.
void refuse_beyond_file(const ModelDescription& description, const Pretrained& pretrained,
                        const fs::path& folder, const Registry& registry) {
  const TensorMap tensors = state_dict_of(read_weights(pretrained.weights)).tensors;
  const ModelOptions& options = description.config.model;
  if (options.num_layers > static_cast<int64_t>(tensors.size())) {
    refuse_folder(folder, fmt::format("its config.json asks for {} layers, and its weights have {} "
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
    refuse_folder(folder, "its config.json asks for impossible sizes");
  }
  // Tied weights are in the file once; positions and masks are in the module alone.
  if (asked / 2 <= there + (int64_t{1} << 20)) return;
  refuse_folder(folder, fmt::format("its config.json asks for {} numbers, and its weights have {}; "
                                    "they do not belong together",
                                    asked, there));
}

}  // namespace

DescribedModel transformers_model(const fs::path& folder, const std::vector<std::string>& sets,
                                  const Registry& registry) {
  const Json json = config_json(folder);
  if (!is_classifier(json)) {
    refuse_folder(folder,
                  "its config.json names no class that ends in ForSequenceClassification, and "
                  "those alone have one answer for a text; give the run folder or the "
                  "model.tanren.safetensors");
  }
  RunConfig config;
  config.run.name = "predict";
  config.run.steps = 1;
  config.model.from_hf = fs::absolute(folder).string();
  config.model.task = text_at(json, "model_type") == "gpt2" ? "classify" : "";
  const Pretrained pretrained = resolve_model(config.model);
  config.model = pretrained.model;
  config.precision.mode = "fp32";  // as transformers computes, whatever the CPU has
  const std::string problem = text_at(json, "problem_type");
  DataInfo info;
  const auto names = output_names(json, folder);
  // As the pipeline of transformers: one output, or outputs of their own, are probabilities by the
  // sigmoid, but for a regression.
  const bool is_regression = problem == "regression";
  info.class_labels = !is_regression && problem != "multi_label_classification" && names.size() > 1;
  config.model.loss = info.class_labels ? "cross_entropy" : is_regression ? "mse" : "bce";
  if (!info.class_labels) config.evaluate.metrics.clear();
  info.outputs = std::ssize(names);
  info.class_names = names;
  info.tokenizer = std::make_shared<const TokenizerFiles>(read_tokenizer_files(folder));
  const auto tokenizer = load_tokenizer(*info.tokenizer, folder);
  info.vocab_size = tokenizer->vocab_size();
  const int64_t context = context_of(folder, config.model.context_length);
  info.input_shape = {context};
  config.data.train.kind = "text_table";
  config.data.train.path = "-";
  config.data.train.tokenizer = "-";
  config.data.train.context = context;
  config.data.train.label_type = info.class_labels ? "class" : "value";
  const fs::path file = folder / "config.json";
  DescribedModel model;
  model.name = folder.string();
  model.description =
      description_of(describe_model(config, info, kManySamples), file, sets, registry.known());
  refuse_beyond_file(model.description, pretrained, folder, registry);
  const NoInitScope no_init;
  const Task task = registry.models.make(model.description.config.model, model.description.info);
  const at::NoGradGuard no_grad;
  const InitReport report = init_from_pretrained(*task.module, pretrained);
  if (!report.skipped.empty()) {
    refuse_folder(folder, "its weights lack " + report.skipped.front() +
                              ", so that it would answer by chance; give a trained classifier");
  }
  model.read.tensors = tensors_of(*task.module);
  model.weights = "the weights of " + pretrained.weights.string();
  return model;
}

}  // namespace tanren
