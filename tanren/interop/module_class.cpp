#include "tanren/interop/module_class.h"

#include "tanren/base/error.h"
#include "tanren/base/json_text.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/weights_file.h"
#include "tanren/interop/hf_config.h"

#include <nlohmann/json.hpp>
#include <ATen/core/Tensor.h>

#include <array>
#include <system_error>

namespace tanren {

namespace {

constexpr std::string_view kModule = "module of class ";

// The plain values of the config that a pickled transformers module carries, as a config.json.
std::string config_of(const WeightsFile& file, const std::string& model_type) {
  constexpr std::string_view kPrefix = "config.";
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, value] : file.content.values) {
    if (!name.starts_with(kPrefix) || name.find('.', kPrefix.size()) != std::string::npos) continue;
    std::visit([&, key = name.substr(kPrefix.size())](const auto& plain) { json[key] = plain; },
               value);
  }
  json["model_type"] = model_type;  // a class attribute in Python, so not in the file
  return json_text(json);
}

// The size by the number of blocks in each stage, and by their type.
std::string resnet_size(const TensorMap& tensors) {
  std::array<int64_t, 4> blocks{};
  for (size_t stage = 0; stage < blocks.size(); ++stage) {
    const auto has = [&](int64_t block) {
      return tensors.contains(fmt::format("layer{}.{}.conv1.weight", stage + 1, block));
    };
    while (has(blocks[stage])) ++blocks[stage];
  }
  const bool bottleneck = tensors.contains("layer1.0.conv3.weight");
  using Blocks = std::array<int64_t, 4>;
  if (blocks == Blocks{2, 2, 2, 2} && !bottleneck) return "resnet18";
  if (blocks == Blocks{3, 4, 6, 3}) return bottleneck ? "resnet50" : "resnet34";
  if (blocks == Blocks{3, 4, 23, 3} && bottleneck) return "resnet101";
  if (blocks == Blocks{3, 8, 36, 3} && bottleneck) return "resnet152";
  return "";
}

std::string vgg_size(const TensorMap& tensors) {
  int64_t layers = 3;  // the classifier's
  bool norm = false;
  for (const auto& [name, tensor] : tensors) {
    if (!name.starts_with("features.")) continue;
    layers += tensor.dim() == 4;
    norm = norm || name.ends_with(".running_mean");
  }
  for (const int64_t known : {11, 13, 16, 19}) {
    if (layers == known) return fmt::format("vgg{}{}", known, norm ? "_bn" : "");
  }
  return "";
}

}  // namespace

bool is_module_file(const std::string& name) {
  const std::filesystem::path path = name;
  const auto end = path.extension();
  std::error_code none;
  return (end == ".pt" || end == ".pth" || end == ".bin") &&
         std::filesystem::is_regular_file(path, none);
}

ModelOptions options_of_module(const std::filesystem::path& path, const ModelOptions& asked) {
  const WeightsFile file = read_weights(path);
  const auto fail = [&](const std::string& what) {
    throw ConfigError(
        fmt::format("[model] from_hf {} holds a {}{}; set model.kind and model.init_from instead",
                    path.string(), one_line(file.kind), what));
  };
  if (!file.kind.starts_with(kModule)) fail(", which does not say what model it is");
  const std::string name = file.kind.substr(kModule.size());
  for (const char* type : {"bert", "gpt2"}) {
    if (name.starts_with("transformers.models." + std::string(type) + ".")) {
      return options_of_hf_text(config_of(file, type), path.string(), asked);
    }
  }
  const bool resnet = name == "torchvision.models.resnet.ResNet";
  if (!resnet && name != "torchvision.models.vgg.VGG") fail(", a class that is not known here");
  ModelOptions options = asked;
  options.kind = resnet ? "resnet" : "vgg";
  const std::string size =
      resnet ? resnet_size(file.content.tensors) : vgg_size(file.content.tensors);
  if (size.empty()) fail(" with layers that no known size has");
  if (options.size.empty()) options.size = size;
  return options;
}

}  // namespace tanren
