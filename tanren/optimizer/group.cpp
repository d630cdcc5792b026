#include "tanren/optimizer/group.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"
#include "tanren/base/layer_order.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/kinds.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/optimizer/parameter_values.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <unordered_map>

namespace tanren {
namespace {

std::string numbers(at::IntArrayRef values) { return fmt::format("[{}]", fmt::join(values, ", ")); }

void check_parameter(const NamedParameter& parameter) {
  const at::Tensor& tensor = parameter.tensor;
  if (!tensor.defined() || tensor.layout() != at::kStrided ||
      !tensor.is_non_overlapping_and_dense()) {
    throw Error(
        fmt::format("[optimizer] parameter '{}' is not a dense tensor of its own memory; "
                    "make it contiguous",
                    parameter.name));
  }
  if (!at::isFloatingType(tensor.scalar_type())) {
    throw Error(fmt::format("[optimizer] parameter '{}' has dtype {}; only floating dtypes train",
                            parameter.name, c10::toString(tensor.scalar_type())));
  }
}

[[noreturn]] void throw_layout(const std::string& name, const at::Tensor& parameter,
                               const at::Tensor& gradient) {
  throw Error(fmt::format(
      "[optimizer] the gradient of '{}' has shape {}, strides {}, dtype {}, its parameter {}, {}, "
      "{}; allocate it with at::empty_like(parameter)",
      name, numbers(gradient.sizes()),
      gradient.layout() == at::kStrided ? numbers(gradient.strides()) : "sparse",
      c10::toString(gradient.scalar_type()), numbers(parameter.sizes()),
      numbers(parameter.strides()), c10::toString(parameter.scalar_type())));
}

// Learning-rate scale and weight decay of one parameter, without its layer's factor.
ParameterValues values_of(const OptimizerOptions& options, const NamedParameter& parameter) {
  const bool decays =
      parameter.decays && (options.decay_norms_and_biases || parameter.tensor.dim() > 1);
  const double weight_decay = decays ? options.weight_decay.value_or(0) : 0.0;
  for (const GroupOptions& group : options.groups) {
    if (matches_any(group.parameters, parameter.name)) {
      const double own_decay = group.weight_decay.value_or(weight_decay);
      return {group.learning_rate_scale.value_or(1.0), parameter.decays ? own_decay : 0.0};
    }
  }
  return {1.0, weight_decay};
}

// One factor on the learning rate per parameter.
std::vector<double> layer_factors(const OptimizerOptions& options,
                                  const std::vector<std::string>& names) {
  if (options.layer_decay == 1) return std::vector<double>(names.size(), 1.0);
  return layer_scales(layers_of(names, options.layers), options.layer_decay);
}

}  // namespace

std::vector<ParameterValues> parameter_values(const OptimizerOptions& options,
                                              const std::vector<NamedParameter>& parameters) {
  std::vector<std::string> names;
  names.reserve(parameters.size());
  for (const NamedParameter& parameter : parameters) names.push_back(parameter.name);
  const std::vector<double> factors = layer_factors(options, names);
  std::vector<ParameterValues> values;
  for (size_t i = 0; i < parameters.size(); ++i) {
    values.push_back(values_of(options, parameters[i]));
    values.back().learning_rate_scale *= factors[i];
  }
  return values;
}

void check_patterns(const std::string& key, const std::vector<std::string>& patterns,
                    const std::vector<NamedParameter>& parameters) {
  if (patterns.empty()) return;
  std::vector<std::string> names;
  names.reserve(parameters.size());
  for (const NamedParameter& parameter : parameters) names.push_back(parameter.name);
  for (const std::string& pattern : patterns) {
    bool found = false;
    for (const std::string& name : names) found = found || matches(pattern, name);
    if (found) continue;
    std::string plain;
    for (const char c : pattern) {
      if (c != '*' && c != '?') plain += c;
    }
    const std::string near = nearest(plain, names);
    throw ConfigError(fmt::format(
        "[optimizer] {}: the pattern '{}' matches no parameter; {}", key, pattern,
        near.empty() ? "the parameters are " + join(names) : "the nearest is '" + near + "'"));
  }
}

void check_patterns(const OptimizerOptions& options, const std::vector<NamedParameter>& model) {
  const OptimizerOptions defaults;
  std::vector<std::string> of_groups;
  for (const GroupOptions& group : options.groups) {
    of_groups.insert(of_groups.end(), group.parameters.begin(), group.parameters.end());
  }
  check_patterns("groups", of_groups, model);
  // The default patterns are for any model, so they need not match.
  const OptimizerKind* kind = optimizer_kind(options.kind);
  const bool has_rest = kind != nullptr && kind->leaves_some_to_adamw;
  if (has_rest && options.adamw_parameters != defaults.adamw_parameters) {
    check_patterns("adamw_parameters", options.adamw_parameters, model);
  }
  if (options.state != "fp32" && options.fp32_state != defaults.fp32_state) {
    check_patterns("fp32_state", options.fp32_state, model);
  }
}

void TensorLists::clear() {
  for (TensorVector* list : {&parameters, &gradients, &first, &second, &third, &steps}) {
    list->clear();
  }
}

void TensorLists::append(const TensorLists& from, size_t i) {
  parameters.push_back(from.parameters[i]);
  gradients.push_back(from.gradients[i]);
  if (!from.first.empty()) first.push_back(from.first[i]);
  if (!from.second.empty()) second.push_back(from.second[i]);
  if (!from.third.empty()) third.push_back(from.third[i]);
  if (!from.steps.empty()) steps.push_back(from.steps[i]);
}

size_t Group::refresh(const StepInput& input) {
  size_t count = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const at::Tensor& gradient = all.parameters[i].grad();
    if (!gradient.is_same(all.gradients[i])) {
      if (gradient.defined() && !same_layout(gradient, all.parameters[i])) {
        throw_layout(names[i], all.parameters[i], gradient);
      }
      all.gradients[i] = gradient;
    }
    present[i] = gradient.defined() && (input.active == nullptr || (*input.active)[index[i]] != 0);
    count += present[i];
  }
  return count;
}

const TensorLists& Group::select(const std::vector<uint8_t>& flags) {
  if (std::find(flags.begin(), flags.end(), 0) == flags.end()) return all;
  some_.clear();
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] != 0) some_.append(all, i);
  }
  return some_;
}

std::vector<Group> make_groups(const OptimizerOptions& options,
                               const std::vector<NamedParameter>& parameters,
                               const std::function<int(const NamedParameter&)>& part_of) {
  std::vector<std::string> names;
  for (const NamedParameter& parameter : parameters) {
    check_parameter(parameter);
    names.push_back(parameter.name);
  }
  const std::vector<ParameterValues> values = parameter_values(options, parameters);
  using Key = std::tuple<int, double, double, at::ScalarType, std::string>;
  std::map<Key, size_t> known;
  std::vector<Group> groups;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto [scale, decay] = values[i];
    const int part = part_of ? part_of(parameters[i]) : 0;
    const at::Tensor& tensor = parameters[i].tensor;
    const Key key{part, scale, decay, tensor.scalar_type(), tensor.device().str()};
    const auto [place, is_new] = known.try_emplace(key, groups.size());
    if (is_new) {
      groups.emplace_back().learning_rate_scale = scale;
      groups.back().weight_decay = decay;
      groups.back().part = part;
    }
    Group& group = groups[place->second];
    group.index.push_back(i);
    group.names.push_back(names[i]);
    group.all.parameters.push_back(tensor);
    group.all.gradients.emplace_back();
    group.present.push_back(0);
  }
  return groups;
}

OptimizerOptions resolved(const OptimizerOptions& options,
                          const std::vector<NamedParameter>& parameters,
                          const std::vector<NamedParameter>& model, bool own_layers) {
  check_patterns(options, model);
  const std::vector<NamedParameter>& whole = own_layers ? parameters : model;
  const std::vector<ParameterValues> values = parameter_values(options, whole);
  std::unordered_map<std::string_view, ParameterValues> value_of_name;
  for (size_t i = 0; i < whole.size(); ++i) value_of_name.emplace(whole[i].rule_name(), values[i]);
  OptimizerOptions own = options;
  own.groups.clear();
  own.layer_decay = 1;
  own.layers.clear();
  for (const NamedParameter& parameter : parameters) {
    const auto [scale, decay] = value_of_name.at(parameter.rule_name());
    own.groups.push_back({{parameter.name}, scale, decay});
  }
  for (auto* patterns : {&own.adamw_parameters, &own.fp32_state}) {
    std::erase_if(*patterns, [&](const std::string& pattern) {
      return std::none_of(
          parameters.begin(), parameters.end(),
          [&](const NamedParameter& parameter) { return matches(pattern, parameter.rule_name()); });
    });
  }
  return own;
}

OptimizerOptions options_of_part(const OptimizerOptions& options,
                                 const std::vector<NamedParameter>& part,
                                 const std::vector<NamedParameter>& model, bool own_layers) {
  return part.size() < model.size() ? resolved(with_defaults(options), part, model, own_layers)
                                    : options;
}

void call_fused(const TensorLists& lists, const std::function<void(const TensorLists&)>& kernel) {
  const auto is_narrow = [](const at::Tensor& tensor) { return tensor.element_size() < 4; };
  if (lists.parameters.empty()) return;
  const at::Tensor& one = lists.parameters.front();
  if (!is_narrow(one) || kernels_of(one) == at::kCUDA) return kernel(lists);
  for (size_t i = 0; i < lists.parameters.size(); ++i) {
    TensorLists kept;
    kept.append(lists, i);
    TensorLists wide = kept;
    const std::array<std::pair<TensorVector*, TensorVector*>, 5> pairs = {{
        {&wide.parameters, &kept.parameters},
        {&wide.gradients, &kept.gradients},
        {&wide.first, &kept.first},
        {&wide.second, &kept.second},
        {&wide.third, &kept.third},
    }};
    for (const auto& [copies, originals] : pairs) {
      for (at::Tensor& copy : *copies) copy = copy.detach().to(at::kFloat);
    }
    kernel(wide);
    for (const auto& [copies, originals] : pairs) {
      if (originals == &kept.gradients) continue;
      for (size_t j = 0; j < originals->size(); ++j) (*originals)[j].copy_((*copies)[j]);
    }
  }
}

TensorVector zeros_like_all(const TensorVector& parameters) {
  TensorVector zeros;
  for (const at::Tensor& parameter : parameters) {
    zeros.push_back(at::zeros_like(parameter.detach()));
    if (!same_layout(zeros.back(), parameter)) {
      throw Error(
          "[optimizer] the state of a parameter has other strides than the parameter; "
          "make the parameter contiguous or channels-last");
    }
  }
  return zeros;
}

bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  if (a.layout() != at::kStrided || b.layout() != at::kStrided ||
      a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes() || a.device() != b.device()) {
    return false;
  }
  for (int64_t dim = 0; dim < a.dim(); ++dim) {
    if (a.size(dim) != 1 && a.stride(dim) != b.stride(dim)) return false;
  }
  return true;
}

namespace {

std::unordered_map<std::string_view, const at::Tensor*> by_name(const TensorMap& tensors) {
  std::unordered_map<std::string_view, const at::Tensor*> named;
  for (const auto& [name, tensor] : tensors) named.emplace(name, &tensor);
  return named;
}

}  // namespace

void check_tensors(const NamedTensors& into, const TensorMap& from) {
  const auto given = by_name(from);
  for (const auto& [name, own] : into) {
    const auto found = given.find(name);
    if (found == given.end()) {
      throw CheckpointError(fmt::format(
          "[optimizer] the checkpoint lacks '{}' ({} tensors needed, {} given); it is of another "
          "model or optimizer",
          name, into.size(), from.size()));
    }
    const at::Tensor& tensor = *found->second;
    if (tensor.sizes() != own.sizes() || tensor.scalar_type() != own.scalar_type()) {
      throw CheckpointError(fmt::format(
          "[optimizer] '{}' is {} {} in the checkpoint, {} {} here; it is of another model", name,
          c10::toString(tensor.scalar_type()), numbers(tensor.sizes()),
          c10::toString(own.scalar_type()), numbers(own.sizes())));
    }
  }
  if (from.size() != into.size()) {
    std::unordered_map<std::string_view, bool> own_names;
    for (const auto& [name, own] : into) own_names.emplace(name, true);
    for (const auto& [name, tensor] : from) {
      if (own_names.count(name) == 0) {
        throw CheckpointError(
            fmt::format("[optimizer] the checkpoint's '{}' has no place here; it "
                        "is of another model or optimizer",
                        name));
      }
    }
  }
}

void load_tensors(const NamedTensors& into, const TensorMap& from) {
  check_tensors(into, from);
  const at::NoGradGuard no_grad;
  const auto given = by_name(from);
  for (const auto& [name, own] : into) at::Tensor(own).copy_(*given.at(name));
}

State TensorOptimizer::state() const {
  State state;
  for (const auto& [name, tensor] : named()) state.tensors.set(name, tensor);
  return state;
}

bool is_skipped(const StepInput& input) {
  return input.found_inf.defined() && read_to_host(input.found_inf.reshape({1}))[0] != 0;
}

}  // namespace tanren
