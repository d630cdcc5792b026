#include "tanren/interop/torch_state.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/config/kinds.h"
#include "tanren/config/read_config.h"
#include "tanren/formats/pt_file.h"
#include "tanren/interop/torch_optimizer.h"
#include "tanren/interop/torch_state_kinds.h"
#include "tanren/interop/transfer.h"
#include "tanren/optimizer/parameter_values.h"
#include "tanren/train/sharded_state.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

namespace tanren {

namespace {

using Parameters = std::vector<NamedParameter>;

[[noreturn]] void fail(const std::string& path, const std::string& what,
                       const std::string& advice) {
  throw CheckpointError(fmt::format("[optimizer] init_from {}: {}; {}", path, what, advice));
}

Parameters parameters_of(const torch::nn::Module& module) {
  Parameters parameters;
  for (const auto& item : module.named_parameters())
    parameters.push_back({item.key(), item.value()});
  return parameters;
}

// The module's parameters in the order of the file's model, if the file has them all.
Parameters in_file_order(const Parameters& own, const TensorMap& model) {
  Parameters ordered;
  for (const auto& entry : model) {
    const auto found = std::find_if(own.begin(), own.end(), [&](const auto& parameter) {
      return parameter.name == entry.first;
    });
    if (found != own.end()) ordered.push_back(*found);
  }
  return ordered.size() == own.size() ? ordered : own;
}

const NamedParameter& named(const Parameters& own, const std::string& name,
                            const std::string& path) {
  for (const auto& parameter : own) {
    if (parameter.name == name) return parameter;
  }
  fail(path, "its optimizer has state of " + name + ", which the model has not",
       "rename with model.init_rename, or drop optimizer.init_from");
}

// Maps each number of the file to its parameter.
using Numbers = std::map<int64_t, NamedParameter>;

Numbers by_names(const TorchOptimizer& file, const Parameters& own, const ModelOptions& model,
                 const std::string& path) {
  TensorMap names;
  WeightsFile listed;
  for (const auto& group : file.groups) {
    for (size_t i = 0; i < group.names.size(); ++i) {
      listed.content.tensors.set(group.names[i], at::scalar_tensor(group.parameters[i], at::kLong));
    }
  }
  Numbers numbers;
  const TensorMap found = renamed(state_dict_of(listed).tensors, rename_pairs(model));
  for (const auto& [name, number] : found) {
    numbers.emplace(number.item<int64_t>(), named(own, name, path));
  }
  return numbers;
}

bool fits(const TorchOptimizer::Group& group, const TorchOptimizer& file,
          const Parameters& candidates) {
  if (group.parameters.size() != candidates.size()) return false;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const auto state = file.state.find(group.parameters[i]);
    if (state == file.state.end()) continue;
    for (const auto& [name, tensor] : state->second.tensors) {
      if (name != "step" && tensor.sizes() != candidates[i].tensor.sizes()) return false;
    }
  }
  return true;
}

double option_of(const TorchOptimizer::Group& group, const std::string& name, double otherwise) {
  const auto found = group.options.find(name);
  if (found == group.options.end()) return otherwise;
  if (const auto* real = std::get_if<double>(&found->second)) return *real;
  if (const auto* whole = std::get_if<int64_t>(&found->second)) return static_cast<double>(*whole);
  if (const auto* truth = std::get_if<bool>(&found->second)) return *truth ? 1 : 0;
  return otherwise;
}

// Without names: all parameters or only the trained ones, in order, that have the group's weight
// decay.
Numbers by_order(const TorchOptimizer& file, const Parameters& own, const OptimizerOptions& options,
                 const std::string& path) {
  Parameters trained;
  for (const auto& parameter : own) {
    if (parameter.tensor.requires_grad()) trained.push_back(parameter);
  }
  std::map<std::string, ParameterValues> values;
  const auto all_values = parameter_values(options, own);
  for (size_t i = 0; i < own.size(); ++i) values.emplace(own[i].name, all_values[i]);

  Numbers numbers;
  std::set<std::string> taken;
  for (const auto& group : file.groups) {
    const double decay = option_of(group, "weight_decay", 0);
    Parameters found;
    for (const Parameters* from : {&std::as_const(own), &std::as_const(trained)}) {
      Parameters candidates;
      for (const auto& parameter : *from) {
        const bool alone = file.groups.size() == 1;
        const bool same = std::abs(values.at(parameter.name).weight_decay - decay) < 1e-12;
        if ((alone || same) && taken.count(parameter.name) == 0) candidates.push_back(parameter);
      }
      found = candidates;
      if (fits(group, file, candidates)) break;
    }
    if (!fits(group, file, found)) {
      fail(path,
           fmt::format("a group of {} parameters with weight decay {} fits none of this model ({} "
                       "parameters, {} with that weight decay, in other shapes or number)",
                       to_text(std::ssize(group.parameters)), to_text(decay),
                       to_text(std::ssize(own)), to_text(std::ssize(found))),
           "give optimizer.groups as torch had them, or make the torch optimizer of "
           "model.named_parameters(), which names them");
    }
    for (size_t i = 0; i < found.size(); ++i) {
      numbers.emplace(group.parameters[i], found[i]);
      taken.insert(found[i].name);
    }
  }
  return numbers;
}

// Options of torch's groups that differ from ours, as text.
std::vector<std::string> differences(const TorchOptimizer& file, const OptimizerOptions& o,
                                     const std::string& path) {
  std::vector<std::pair<std::string, double>> own = {{"lr", o.learning_rate}};
  if (o.kind == "sgd") {
    own.insert(
        own.end(),
        {{"momentum", *o.momentum}, {"dampening", o.dampening}, {"nesterov", *o.nesterov ? 1 : 0}});
  } else {
    own.insert(own.end(), {{"betas.0", o.beta1},
                           {"betas.1", *o.beta2},
                           {"eps", *o.eps},
                           {"amsgrad", o.amsgrad ? 1 : 0},
                           {"decoupled_weight_decay", decouples_decay(o) ? 1 : 0}});
  }
  const auto& group = file.groups.front();
  if (option_of(group, "maximize", 0) != 0) {
    fail(path, "its optimizer maximises", "train it with torch's maximize = False");
  }
  std::vector<std::string> told;
  for (const auto& [name, value] : own) {
    const double theirs = option_of(group, name, value);
    if (std::abs(theirs - value) <= 1e-12 * std::abs(value)) continue;
    told.push_back(fmt::format("{} {} there, {} here", name, to_text(theirs), to_text(value)));
  }
  if (file.groups.size() == 1 && o.groups.empty()) {
    const double theirs = option_of(group, "weight_decay", *o.weight_decay);
    if (theirs != *o.weight_decay) {
      told.push_back(
          fmt::format("weight_decay {} there, {} here", to_text(theirs), to_text(*o.weight_decay)));
    }
  }
  return told;
}

// Copies the state of one parameter; returns its number of updates so far, or -1.
double take_over(const State& theirs, const NamedParameter& parameter,
                 const OptimizerOptions& options, const std::string& path, State& state) {
  double updates = -1;
  for (const auto& name : kept_by(options)) {
    const auto* tensor = theirs.tensors.find(name);
    const auto number = theirs.values.find(name);
    if (name == "step") {
      const bool is_number = tensor != nullptr && tensor->numel() == 1;
      at::Tensor step = is_number ? tensor->reshape({}) : at::Tensor();
      if (number != theirs.values.end()) {
        const auto* count = std::get_if<int64_t>(&number->second);
        if (count != nullptr) step = at::scalar_tensor(*count, at::kFloat);
      }
      if (!step.defined()) fail(path, "it lacks the step of " + parameter.name, "save it whole");
      updates = step.item<double>();
      state.tensors.set(parameter.name + ".step", step.to(at::kFloat));
      continue;
    }
    if (tensor == nullptr) {
      std::vector<std::string> there;
      for (const auto& [has, unused] : theirs.tensors) there.push_back(has);
      fail(path,
           fmt::format("its state of {} is {}, without {}", parameter.name, join(there), name),
           "set optimizer.kind and its options to what made it");
    }
    if (tensor->sizes() != parameter.tensor.sizes()) {
      fail(path, name + " of " + parameter.name + " has another shape than the parameter",
           "name the checkpoint of this model");
    }
    state.tensors.set(parameter.name + "." + name, *tensor);
    if (name == "momentum_buffer") state.values[parameter.name + ".started"] = true;
  }
  return updates;
}

// A positive number of the file's entry `key`.
double number_of(const Value& value, const std::string& key, const std::string& path) {
  double number = -1;
  if (const auto* real = std::get_if<double>(&value)) number = *real;
  if (const auto* whole = std::get_if<int64_t>(&value)) number = static_cast<double>(*whole);
  if (number >= 0 && number < 1e38) return number;
  fail(path, key + " is no number of at least 0 and below 1e38",
       "save amp.state_dict() again, or drop the entry");
}

// The loss scales under "amp" or a key that ends so: "amp.loss_scaler0.loss_scale", ".unskipped".
std::vector<LossScale> loss_scales_of(const State& content, const std::string& path) {
  constexpr std::string_view kEntry = "amp.loss_scaler";
  constexpr size_t kMost = 64;  // more objectives than any task has
  std::vector<std::optional<LossScale>> found;
  for (const auto& [name, value] : content.values) {
    const size_t at = name.find(kEntry);
    if (at == std::string::npos || (at > 0 && name[at - 1] != '.')) continue;
    const size_t dot = name.find('.', at + kEntry.size());
    size_t index = 0;
    const char* begin = name.data() + at + kEntry.size();
    const char* end = name.data() + std::min(dot, name.size());
    const auto parsed = std::from_chars(begin, end, index);
    if (parsed.ec != std::errc() || parsed.ptr != end || index >= kMost) continue;
    if (found.size() <= index) found.resize(index + 1);
    const std::string key = name.substr(std::min(dot, name.size()));
    auto& scale = found[index];
    if (key == ".loss_scale") {
      if (!scale) scale.emplace();
      scale->scale = number_of(value, name, path);
      if (scale->scale == 0) fail(path, name + " is 0", "drop the entry");
    } else if (key == ".unskipped") {
      if (!scale) scale.emplace();
      scale->quiet_steps = static_cast<int64_t>(std::min(number_of(value, name, path), 1e15));
    }
  }
  std::vector<LossScale> scales;
  for (const auto& scale : found) {
    if (!scale) break;
    scales.push_back(*scale);
  }
  return scales;
}

}  // namespace

OptimizerStart read_optimizer_start(const torch::nn::Module& module, const RunConfig& config) {
  const OptimizerOptions options = with_defaults(config.optimizer);
  const std::string& path = options.init_from;
  check_travels(options.kind);
  const WeightsFile file = read_weights(path);
  const auto torch = torch_optimizer_of(file, path);
  if (!torch) {
    fail(path, "it holds no optimizer (no param_groups)",
         "save {\"model\": …, \"optimizer\": optimizer.state_dict()} with torch.save");
  }
  Parameters own = parameters_of(module);
  const bool has_names = !torch->groups.front().names.empty();
  Numbers numbers;
  if (has_names) {
    numbers = by_names(*torch, own, config.model, path);
  } else {
    const TensorMap model = renamed(state_dict_of(file).tensors, rename_pairs(config.model));
    numbers = by_order(*torch, in_file_order(own, model), options, path);
  }
  OptimizerStart start;
  int64_t taken = 0;
  double updates = -1;
  for (const auto& [number, state] : torch->state) {
    const auto parameter = numbers.find(number);
    if (parameter == numbers.end()) {
      fail(path, "two of its parameters have one name", "save it again with torch.save");
    }
    const double count = take_over(state, parameter->second, options, path, start.state);
    updates = std::max(updates, count);
    taken += state.tensors.empty() || kept_by(options).empty() ? 0 : 1;
  }
  start.text = fmt::format("state of {} of {} parameters from {}", to_text(taken),
                           to_text(std::ssize(own)), path);
  if (updates >= 0) start.text += fmt::format(", {} updates", to_text(updates));
  start.loss_scales = loss_scales_of(file.content, path);
  for (const LossScale& scale : start.loss_scales) {
    start.text += fmt::format("; loss scale {}, {} updates without overflow (for a dynamic one)",
                              to_text(scale.scale), to_text(scale.quiet_steps));
  }
  for (const auto& told : differences(*torch, options, path)) start.text += "; " + told;
  return start;
}

void start_optimizer(RunState& run, const OptimizerStart& start) {
  size_t next = 0;  // of the loss scales
  for (auto& phase : run.phases) {
    for (auto& objective : phase.objectives) {
      load_known(objective, "", StoredState(start.state, {}));
      if (next < start.loss_scales.size()) objective.scaler.start_from(start.loss_scales[next++]);
    }
  }
}

}  // namespace tanren
