#include "tanren/quantize/fake_quantization.h"

#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/names.h"
#include "tanren/base/operator_listener.h"
#include "tanren/quantize/fake_scope.h"
#include "tanren/quantize/quantized_names.h"
#include "tanren/quantize/readers.h"
#include "tanren/quantize/task_within.h"

#include <fmt/format.h>
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <unordered_map>
#include <utility>

namespace tanren {
namespace {

bool has_input_scale(QuantizeScheme scheme, WeightReader reader) {
  return scheme == QuantizeScheme::calibrated && reader != WeightReader::embedding;
}

// "a.b.weight" → {"a.b", "weight"}
std::pair<std::string, std::string> split_name(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {"", name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

// Why a weight of two dims or more is not among the layers.
std::string why_kept(const ParameterReaders& found, const std::vector<std::string>& keep) {
  if (matches_any(keep, found.name)) return "quantize.keep names it";
  if (found.is_linear_in_training_alone) {
    return "a linear reads it in training alone, and no prediction shows the range of its input";
  }
  return found.reader ? "a convolution, whose inputs get no scale per row" : found.why;
}

// The first weight that stays, with the reason: "kernel: pow reads it in training".
std::string why_none(const torch::nn::Module& module, const std::vector<ParameterReaders>& found,
                     const std::vector<std::string>& keep) {
  const auto parameters = module.named_parameters();
  for (const ParameterReaders& own : found) {
    if (parameters[own.name].dim() > 1) return own.name + ": " + why_kept(own, keep);
  }
  return "it has no matrix";
}

}  // namespace

WeightReaders FakeQuantization::readers() const {
  WeightReaders all;
  for (const FakeLayer& layer : layers) all.emplace(layer.name, layer.reader);
  return all;
}

FakeQuantization find_fake_quantization(const Task& task, const Batch& batch, QuantizeScheme scheme,
                                        const std::vector<std::string>& keep) {
  const std::vector<ParameterReaders> found = find_readers(task, batch, Forwards::training_too);
  WeightReaders readers = weights_to_quantize(found, keep);
  if (scheme == QuantizeScheme::dynamic) {
    std::erase_if(readers, [](const auto& own) { return own.second == WeightReader::convolution; });
  }
  if (scheme == QuantizeScheme::calibrated) {
    for (const ParameterReaders& own : found) {
      if (own.is_linear_in_training_alone) readers.erase(own.name);
    }
  }
  if (readers.empty()) {
    throw ConfigError(fmt::format(
        "[quantize] no weight of the model can become 8-bit ({}); set quantize.scheme to none",
        why_none(*task.module, found, keep)));
  }
  const std::map<std::string, int64_t> elements = input_elements(task, readers, batch);
  FakeQuantization how{.scheme = scheme};
  how.num_norms = static_cast<int64_t>(batch_norms(*task.module).size());
  std::unordered_map<const at::TensorImpl*, std::string> firsts;
  const auto parameters = task.module->named_parameters();
  for (const ParameterReaders& own : found) {
    const at::Tensor& parameter = parameters[own.name];
    const auto reader = readers.find(own.name);
    if (reader == readers.end()) {
      if (parameter.dim() > 1) how.kept.emplace(own.name, why_kept(own, keep));
      continue;
    }
    const auto& first = firsts.try_emplace(parameter.unsafeGetTensorImpl(), own.name).first->second;
    const auto count = elements.find(own.name);
    how.layers.push_back(
        {.name = own.name,
         .reader = reader->second,
         .input_elements = count == elements.end() ? 1 : std::max<int64_t>(count->second, 1),
         .first = first});
  }
  return how;
}

Task fake_quantized(Task task, const FakeQuantization& how) {
  const MemoryScope memory(MemoryKind::weights);
  const auto parameters = task.module->named_parameters();
  const auto modules = task.module->named_modules();
  for (const FakeLayer& layer : how.layers) {
    const at::Tensor* const weight = parameters.find(layer.name);
    if (weight == nullptr || layer.first != layer.name) continue;
    if (!has_input_scale(how.scheme, layer.reader)) continue;
    const QuantizedNames names = quantized_names(layer.name);
    const auto [owner, scale] = split_name(names.input_scale);
    const std::string zero_point = split_name(names.input_zero_point).second;
    torch::nn::Module& module = *modules[owner];
    const bool is_taken = module.named_parameters(/*recurse=*/false).contains(scale) ||
                          module.named_buffers(/*recurse=*/false).contains(zero_point);
    if (is_taken) {
      throw ConfigError(fmt::format(
          "[quantize] the model has a tensor {} of its own, where the scale of the input of {} "
          "belongs; name it otherwise, or keep the weight",
          names.input_scale, layer.name));
    }
    module.register_parameter(scale, at::ones({1}, at::kFloat),
                              layer.trains_scale.value_or(weight->requires_grad()));
    module.register_buffer(zero_point, at::full({1}, 128, at::kLong));
    task.input_scales.insert({names.input_scale, names.input_zero_point});
  }
  const auto layers = std::make_shared<const FakeLayers>(*task.module, how);
  layers->make_norms_still();
  // Batch norms in eval mode do not couple samples. Only the task knows whether something else
  // does.
  if (!task.facts.couples_samples) task.facts.couples_samples = false;
  return task_within<FakeScope>(std::move(task), layers);
}

void set_input_scales(const torch::nn::Module& module, const FakeQuantization& how,
                      const InputScales& scales) {
  const at::NoGradGuard no_grad;
  auto parameters = module.named_parameters();
  auto buffers = module.named_buffers();
  for (const FakeLayer& layer : how.layers) {
    if (layer.first != layer.name || !has_input_scale(how.scheme, layer.reader)) continue;
    const QuantizedNames names = quantized_names(layer.name);
    const InputScale& scale = scales.at(layer.name);
    parameters[names.input_scale].fill_(scale.scale);
    buffers[names.input_zero_point].fill_(scale.zero_point);
  }
}

QuantizedParameters learned_parameters(const TensorMap& tensors, const FakeQuantization& how) {
  QuantizedParameters parameters;
  for (const FakeLayer& layer : how.layers) {
    const at::Tensor weight = tensors.at(layer.name).detach().to(at::kCPU);
    const at::Tensor own = weight.scalar_type() == at::kDouble ? weight.to(at::kFloat) : weight;
    QuantizedParameter& parameter = parameters[layer.name];
    parameter.reader = layer.reader;
    parameter.is_weight_alone = how.scheme == QuantizeScheme::weights;
    const bool is_turned = layer.reader == WeightReader::projection;
    parameter.weight = quantize_weight(is_turned ? own.t() : own, layer.name);
    if (!has_input_scale(how.scheme, layer.reader)) continue;
    const QuantizedNames names = quantized_names(layer.first);
    const at::Tensor scale = above_zero(tensors.at(names.input_scale).detach().cpu());
    parameter.input = InputScale{
        .scale = scale.to(at::kFloat).item<float>(),
        .zero_point = static_cast<int32_t>(tensors.at(names.input_zero_point).item<int64_t>())};
    check_input_scale(*parameter.input, layer.name);
  }
  return parameters;
}

std::set<std::string> input_scale_names(const FakeQuantization& how) {
  std::set<std::string> all;
  for (const FakeLayer& layer : how.layers) {
    if (layer.first != layer.name || !has_input_scale(how.scheme, layer.reader)) continue;
    const QuantizedNames names = quantized_names(layer.name);
    all.insert({names.input_scale, names.input_zero_point});
  }
  return all;
}

std::set<std::string> input_scale_names(const TensorMap& tensors,
                                        const std::vector<std::string>& keep) {
  std::set<std::string> scales, zero_points, all;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.dim() != 1 || tensor.numel() != 1) continue;
    if (tensor.is_floating_point()) scales.insert(name);
    if (tensor.scalar_type() == at::kLong) zero_points.insert(name);
  }
  for (const auto& [name, tensor] : tensors) {
    if (tensor.dim() < 2 || !tensor.is_floating_point() || matches_any(keep, name)) continue;
    const QuantizedNames names = quantized_names(name);
    const bool has_both =
        scales.count(names.input_scale) > 0 && zero_points.count(names.input_zero_point) > 0;
    if (has_both) all.insert({names.input_scale, names.input_zero_point});
  }
  return all;
}

TensorMap without_names(const TensorMap& tensors, const std::set<std::string>& names) {
  if (names.empty()) return tensors;
  TensorMap rest;
  for (const auto& [name, tensor] : tensors) {
    if (names.count(name) == 0) rest.set(name, tensor);
  }
  return rest;
}

}  // namespace tanren
