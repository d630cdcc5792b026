#include "tanren/interop/model_description.h"

#include "tanren/base/error.h"
#include "tanren/base/json_text.h"
#include "tanren/base/text.h"
#include "tanren/config/read_config.h"
#include "tanren/config/write_config.h"
#include "tanren/interop/table_json.h"
#include "tanren/model/class_name.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

namespace tanren {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;

constexpr const char* kPackageKey = "tanren.package";
constexpr const char* kSomewhere = "-";  // replaces a path that the file does not keep
constexpr int64_t kMostOutputs = int64_t{1} << 24;
constexpr int64_t kMostElements = int64_t{1} << 40;
constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "vocab.txt",
                                           "vocab.json",
                                           "merges.txt",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json"};

void forget_files(SourceOptions& source) {
  source.delimiter.clear();  // detected in each file
  if (!source.path.empty()) source.path = kSomewhere;
  if (!source.tokenizer.empty()) source.tokenizer = kSomewhere;
  source.include.clear();
  source.exclude.clear();
  source.part.clear();
}

RunConfig kept_of(const RunConfig& resolved) {
  RunConfig kept;
  kept.run.name = resolved.run.name;
  kept.run.threads = resolved.run.threads;
  kept.run.deterministic = resolved.run.deterministic;
  kept.run.steps = 1;
  kept.model = resolved.model;
  kept.model.init_from.clear();
  kept.model.from_hf.clear();
  kept.model.perceptual.clear();  // a term of training
  kept.model.path.clear();        // a program, which only the user may name
  kept.model.init_skip.clear();
  kept.model.init_rename.clear();
  kept.model.freeze.clear();
  kept.model.memory_format = ModelOptions().memory_format;
  kept.data = resolved.data;
  kept.data.eval = evaluation_source(resolved.data);
  kept.data.split = 0;  // evaluation uses all the given data
  forget_files(kept.data.train);
  forget_files(kept.data.eval);
  kept.batch = resolved.batch;
  kept.precision = resolved.precision;
  kept.evaluate = resolved.evaluate;
  kept.evaluate.checkpoint = EvaluateOptions().checkpoint;
  kept.generate = resolved.generate;
  for (const auto& [name, objective] : resolved.objectives) {
    ObjectiveOptions own{.optimizer = kept.optimizer, .schedule = kept.schedule, .clip = kept.clip};
    own.weights = objective.weights;  // evaluation's loss uses them, too
    if (!resolved.model.perceptual.empty()) own.weights.erase("perceptual");
    // Without the term "perceptual" the weights may all be 0, which a plan refuses. Then the task's
    // own weights apply.
    const auto is_some = [](const auto& weight) { return weight.second != 0; };
    if (std::any_of(own.weights.begin(), own.weights.end(), is_some)) {
      kept.objectives.emplace(name, own);
    }
  }
  return kept;
}

// Values of a hostile file are never copied or printed. The JSON library does both by recursion, as
// deep as the value nests.
int64_t count_in(const Json& value, const char* key, int64_t most, const fs::path& file) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() > most) {
    refuse_description(file, std::string("has no usable ") + key);
  }
  return value.get<int64_t>();
}

int64_t count_of(const Json& json, const char* key, int64_t most, const fs::path& file) {
  const auto found = json.find(key);
  if (found == json.end()) refuse_description(file, std::string("has no usable ") + key);
  return count_in(*found, key, most, file);
}

Json object_of(const Metadata& metadata, const char* key, const fs::path& file) {
  Json json = parse_json(metadata.at(key));
  if (!json.is_object())
    refuse_description(file, std::string("has a ") + key + " that is no JSON object");
  return json;
}

std::vector<std::string> texts_of(const Json& json, const char* key, const fs::path& file) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array())
    refuse_description(file, std::string("has no ") + key);
  std::vector<std::string> texts;
  for (const auto& text : *found) {
    if (!text.is_string())
      refuse_description(file, std::string("has something in ") + key + " that is no text");
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

void read_info(const Json& json, ModelDescription& description, const fs::path& file) {
  DataInfo& info = description.info;
  const auto shape = json.find("input_shape");
  if (shape == json.end() || !shape->is_array() || shape->size() > 8) {
    refuse_description(file, "has no usable input_shape");
  }
  double elements = 1;
  for (const auto& size : *shape) {
    const bool varies = size.is_number_integer() && size.get<int64_t>() == kAnySize;
    info.input_shape.push_back(varies ? kAnySize
                                      : count_in(size, "input_shape", kMostOutputs, file));
    if (!varies) elements *= static_cast<double>(info.input_shape.back());
  }
  if (elements > static_cast<double>(kMostElements))
    refuse_description(file, "has an absurd input_shape");
  if (const auto target = json.find("target_shape"); target != json.end()) {
    if (!target->is_array() || target->size() != 3)
      refuse_description(file, "has no usable target_shape");
    for (const auto& size : *target) {
      info.target_shape.push_back(count_in(size, "target_shape", kMostOutputs, file));
    }
  }
  info.outputs = count_of(json, "outputs", kMostOutputs, file);
  info.vocab_size = count_of(json, "vocab_size", kMostOutputs, file);
  info.token_types = count_of(json, "token_types", kMostOutputs, file);
  description.train_samples =
      std::max<int64_t>(1, count_of(json, "train_samples", int64_t{1} << 40, file));
  const auto classes = json.find("class_labels");
  if (classes == json.end() || !classes->is_boolean())
    refuse_description(file, "has no usable class_labels");
  info.class_labels = classes->get<bool>();
  info.class_names = texts_of(json, "class_names", file);
  info.feature_names = texts_of(json, "feature_names", file);
  if (const auto table = json.find("table"); table != json.end()) {
    std::string problem;
    info.table = table_of_json(*table, info.feature_names, elements, problem);
    if (info.table == nullptr) refuse_description(file, problem);
  }
  const auto named = static_cast<int64_t>(info.class_names.size());
  if (named > 0 && named != info.outputs) {
    refuse_description(file, fmt::format("names {} classes of {}", named, info.outputs));
  }
}

bool has_mode_of_8_bits(const PrecisionOptions& precision) {
  const std::string& mode = precision.mode;
  return precision.level.empty() && (mode == "auto" || mode == "fp32" || mode == "bf16");
}

// The config of a file with 8-bit weights. If the model was trained in fp16, fp64 or under a level,
// which 8-bit weights do not support, the precision becomes auto.
std::string config_of_8_bits(const std::string& text, const fs::path& file,
                             const KnownKinds& known) {
  RunConfig config = parse_config(text, file.string(), fs::current_path(), {}, known);
  if (has_mode_of_8_bits(config.precision)) return text;
  const std::string matmul = config.precision.matmul;
  config.precision = PrecisionOptions();
  config.precision.matmul = matmul;
  return to_toml(config);
}

// Sets the device to the CPU and refuses other devices and precisions, because 8-bit weights
// compute in place of fp32 or bf16 on the CPU.
void run_in_8_bits(RunConfig& config, const fs::path& file) {
  const auto refuse = [&](const std::string& key, const std::string& value, const char* wanted) {
    throw ConfigError(fmt::format(
        "[model] {} has 8-bit weights, which need {}, and {} is {}; change it with --set",
        file.string(), wanted, key, value));
  };
  const auto& precision = config.precision;
  if (!precision.level.empty()) refuse("precision.level", precision.level, "none");
  if (!has_mode_of_8_bits(precision)) refuse("precision.mode", precision.mode, "fp32 or bf16");
  if (config.run.device != "auto" && config.run.device != "cpu") {
    refuse("run.device", config.run.device, "the CPU");
  }
  config.run.device = "cpu";
}

std::shared_ptr<const TokenizerFiles> tokenizer_of(const Json& json, const fs::path& file) {
  TokenizerFiles files;
  for (const auto& [name, text] : json.items()) {
    const bool known = std::find(std::begin(kTokenizerFiles), std::end(kTokenizerFiles), name) !=
                       std::end(kTokenizerFiles);
    if (!known || !text.is_string()) {
      refuse_description(file, "has \"" + name.substr(0, 40) + "\" among the tokenizer's files");
    }
    files[name] = text.get<std::string>();
  }
  return std::make_shared<const TokenizerFiles>(std::move(files));
}

}  // namespace

SourceOptions evaluation_source(const DataOptions& data) {
  const SourceOptions defaults;
  SourceOptions source = data.eval.kind.empty() ? data.train : data.eval;
  if (source.crop != "none") source.crop = defaults.crop;
  source.crop_scale = defaults.crop_scale;
  source.crop_ratio = defaults.crop_ratio;
  source.pad = defaults.pad;
  source.flip = defaults.flip;
  source.color = defaults.color;
  source.tokenizer.clear();
  source.class_names.clear();
  return source;
}

Metadata in_precision(Metadata model, const PrecisionOptions& precision, const fs::path& file,
                      const KnownKinds& known) {
  std::string& text = model.at("tanren.config");
  RunConfig config = parse_config(text, file.string(), fs::current_path(), {}, known);
  const bool is_so =
      config.precision.mode == precision.mode && config.precision.level == precision.level;
  if (is_so) return model;
  const std::string matmul = config.precision.matmul;
  config.precision = PrecisionOptions();
  config.precision.mode = precision.mode;
  config.precision.level = precision.level;
  config.precision.matmul = matmul;
  text = to_toml(config);
  return model;
}

Metadata describe_model(const RunConfig& resolved, const DataInfo& info, int64_t train_samples) {
  Json data{{"input_shape", info.input_shape},   {"outputs", info.outputs},
            {"class_labels", info.class_labels}, {"class_names", info.class_names},
            {"vocab_size", info.vocab_size},     {"token_types", info.token_types},
            {"train_samples", train_samples},    {"feature_names", info.feature_names}};
  if (!info.target_shape.empty()) data["target_shape"] = info.target_shape;
  if (info.table != nullptr) data["table"] = table_json(*info.table);
  const auto text_of = [](const Json& json) {
    // Folder names may be invalid UTF-8.
    return json_text(json);
  };
  Metadata metadata{{kVersionKey, kFloatingVersion},
                    {"tanren.config", to_toml(kept_of(resolved))},
                    {"tanren.data", text_of(data)}};
  if (info.tokenizer) metadata["tanren.tokenizer"] = text_of(*info.tokenizer);
  return metadata;
}

Metadata describe_quantized(Metadata model, const QuantizeNote& note) {
  model[kVersionKey] = kQuantizedVersion;
  model[kQuantizeKey] = quantize_text(note);
  return model;
}

Metadata describe_floating(Metadata model) {
  const auto version = model.find(kVersionKey);
  if (version != model.end() && version->second == kQuantizedVersion)
    version->second = kFloatingVersion;
  model.erase(kQuantizeKey);
  return model;
}

Metadata describe_package(Metadata model, const TaskFacts& facts) {
  if (!facts.graph) return model;
  const GraphFacts& graph = *facts.graph;
  model[kPackageKey] = json_text(
      Json{{"checksum", graph.checksum}, {"class", graph.class_name}, {"config", graph.hf_config}});
  return model;
}

std::optional<PackageNote> package_note(const Metadata& metadata, const fs::path& file) {
  if (metadata.count(kPackageKey) == 0) return std::nullopt;
  const Json json = object_of(metadata, kPackageKey, file);
  const auto text = [&](const char* key) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_string()) {
      refuse_description(file, std::string("has no usable ") + key + " of a package");
    }
    return found->get<std::string>();
  };
  PackageNote note{text("checksum"), text("class"), text("config")};
  if (!is_class_name(note.class_name)) {
    refuse_description(file, "has a package whose class has no plain name");
  }
  if (!note.hf_config.empty() && !parse_json(note.hf_config).is_object()) {
    refuse_description(file, "has a config.json that is no JSON object");
  }
  return note;
}

void refuse_description(const fs::path& file, const std::string& what) {
  throw ConfigError("[model] " + file.string() + ": its description " + what +
                    "; export the model again");
}

namespace {

// Whether the file itself names a program. A key of the user may name one, too.
bool names_program(const std::string& text, const fs::path& file, const KnownKinds& known) {
  return !parse_config(text, file.string(), fs::current_path(), {}, known).model.path.empty();
}

}  // namespace

bool describes_model(const Metadata& metadata) { return metadata.count(kVersionKey) > 0; }

ModelDescription description_of(const Metadata& metadata, const fs::path& file,
                                const std::vector<std::string>& sets, const KnownKinds& known) {
  if (!describes_model(metadata)) {
    throw ConfigError("[model] " + file.string() +
                      " holds weights and no description of a model; give the "
                      "model.tanren.safetensors of a run, or its run folder");
  }
  check_version(metadata, file.string());
  for (const char* key : {"tanren.config", "tanren.data"}) {
    if (metadata.count(key) == 0) refuse_description(file, std::string("lacks ") + key);
  }
  ModelDescription description;
  const fs::path here = fs::current_path();
  const bool has_8_bits = metadata.count(kQuantizeKey) > 0;
  const std::string& text = metadata.at("tanren.config");
  description.config = parse_config(has_8_bits ? config_of_8_bits(text, file, known) : text,
                                    file.string(), here, sets, known);
  RunConfig& config = description.config;
  for (SourceOptions* source : {&config.data.train, &config.data.eval}) {
    if (source->path == here / kSomewhere) source->path.clear();
    source->tokenizer.clear();
  }
  config.model.init_from.clear();
  config.model.from_hf.clear();
  config.model.perceptual.clear();
  if (!config.model.path.empty() && names_program(text, file, known)) {
    refuse_description(file, "names a program to load as its model");
  }
  if (has_8_bits) run_in_8_bits(config, file);
  read_info(object_of(metadata, "tanren.data", file), description, file);
  if (metadata.count("tanren.tokenizer") > 0) {
    description.info.tokenizer = tokenizer_of(object_of(metadata, "tanren.tokenizer", file), file);
  }
  return description;
}

}  // namespace tanren
