#include "tanren/interop/compressed_tensors.h"

#include "tanren/base/json_text.h"
#include "tanren/base/text.h"
#include "tanren/interop/quantized_tensors.h"

#include <nlohmann/json.hpp>
#include <ATen/core/Tensor.h>

#include <map>
#include <utility>
#include <vector>

namespace tanren {

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kWeightEnd = ".weight";
constexpr const char* kIntQuantized = "int-quantized";

// Tables of embeddings are no torch.nn.Linear, also where a head reads one.
bool is_of_linear(const std::string& name) {
  return name.ends_with(kWeightEnd) && name.find("embeddings.") == std::string::npos;
}

std::string layer_of(const std::string& weight) {
  return weight.substr(0, weight.size() - kWeightEnd.size());
}

enum class InputKind { floating, by_token, by_scale };

// Layers of one kind share a group of the config.
struct LayerKind {
  int64_t group = 0;  // elements that share a scale; 0: a whole channel
  InputKind input = InputKind::by_token;

  auto operator<=>(const LayerKind&) const = default;  // NOLINT(modernize-use-nullptr)
};

OrderedJson numbers_of(bool symmetric, const char* strategy, bool dynamic) {
  return {{"num_bits", 8},
          {"type", "int"},
          {"symmetric", symmetric},
          {"strategy", strategy},
          {"dynamic", dynamic}};
}

OrderedJson scheme_of(const LayerKind& kind, const std::vector<std::string>& targets) {
  OrderedJson weights = numbers_of(true, kind.group == 0 ? "channel" : "group", false);
  if (kind.group > 0) weights["group_size"] = kind.group;
  OrderedJson inputs = nullptr;
  if (kind.input == InputKind::by_token) inputs = numbers_of(true, "token", true);
  if (kind.input == InputKind::by_scale) inputs = numbers_of(false, "tensor", false);
  return {{"targets", targets},
          {"weights", weights},
          {"input_activations", inputs},
          {"output_activations", nullptr},
          {"format", kIntQuantized}};
}

// The linear layers of transformers' class whose weights are floating.
std::vector<std::string> ignored_layers(const TensorMap& tensors) {
  std::vector<std::string> ignored;
  for (const auto& [name, tensor] : tensors) {
    if (is_of_linear(name) && tensor.is_floating_point() && tensor.dim() == 2) {
      ignored.push_back(layer_of(name));
    }
    // The head's matrix is the table of the words; no file has it.
    if (name == "cls.predictions.bias") ignored.emplace_back("cls.predictions.decoder");
  }
  return ignored;
}

}  // namespace

CompressedBert compressed_bert(const TensorMap& tensors, const QuantizeNote& note,
                               const std::string& what) {
  CompressedBert bert;
  QuantizeNote others = note;
  std::map<LayerKind, std::vector<std::string>> layers;
  size_t num_layers = 0;
  bool has_token = false;
  for (const auto& [name, parameter] : quantized_parameters(tensors, note, what)) {
    if (parameter.reader != WeightReader::linear || !is_of_linear(name)) continue;
    others.readers.erase(name);
    LayerKind kind;
    if (parameter.weight.groups() > 1) kind.group = parameter.weight.group();
    if (parameter.input) {
      kind.input = InputKind::by_scale;
    } else if (note.scheme == "weights") {
      kind.input = InputKind::floating;
    }
    has_token |= kind.input == InputKind::by_token;
    layers[kind].push_back(layer_of(name));
    ++num_layers;
    const QuantizedNames names = quantized_names(name);
    bert.scales.insert({names.scale, names.input_scale});
  }
  bert.tensors = expanded(tensors, others, what);
  bert.remark =
      fmt::format("{} 8-bit weights: {} linear layers stay int8", note.readers.size(), num_layers);
  if (!others.empty()) {
    bert.remark += fmt::format(", {} of embeddings and others become fp32", others.readers.size());
  }
  if (num_layers == 0) return bert;
  bert.remark += "; opened with the package compressed-tensors";
  if (has_token) {
    bert.remark +=
        ", which quantises the input of a layer of one row a sample (pooler, classifier) with one "
        "scale for the batch, not one for each row";
  }
  OrderedJson groups = OrderedJson::object();
  for (const auto& [kind, names] : layers) {
    const bool is_only = layers.size() == 1;
    groups[fmt::format("group_{}", groups.size())] =
        scheme_of(kind, is_only ? std::vector<std::string>{"Linear"} : names);
  }
  bert.config = json_text(OrderedJson{{"quant_method", "compressed-tensors"},
                                      {"format", kIntQuantized},
                                      {"quantization_status", "compressed"},
                                      {"config_groups", groups},
                                      {"ignore", ignored_layers(bert.tensors)}});
  return bert;
}

}  // namespace tanren
