#include "tanren/interop/torch_state.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/config/kinds.h"
#include "tanren/config/read_config.h"
#include "tanren/formats/pt_file.h"
#include "tanren/interop/torch_numbers.h"
#include "tanren/interop/torch_optimizer.h"
#include "tanren/interop/torch_state_kinds.h"
#include "tanren/optimizer/parameter_values.h"
#include "tanren/train/sharded_state.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>

namespace tanren {

namespace {

using Parameters = std::vector<NamedParameter>;

Parameters parameters_of(const torch::nn::Module& module) {
  Parameters parameters;
  for (const auto& item : module.named_parameters())
    parameters.push_back({item.key(), item.value()});
  return parameters;
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
    fail_start(path, "its optimizer maximises", "train it with torch's maximize = False");
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
      if (!step.defined())
        fail_start(path, "it lacks the step of " + parameter.name, "save it whole");
      updates = step.item<double>();
      state.tensors.set(parameter.name + ".step", step.to(at::kFloat));
      continue;
    }
    if (tensor == nullptr) {
      std::vector<std::string> there;
      for (const auto& [has, unused] : theirs.tensors) there.push_back(has);
      fail_start(
          path, fmt::format("its state of {} is {}, without {}", parameter.name, join(there), name),
          "set optimizer.kind and its options to what made it");
    }
    if (tensor->sizes() != parameter.tensor.sizes()) {
      fail_start(path, name + " of " + parameter.name + " has another shape than the parameter",
                 "name the checkpoint of this model");
    }
    state.tensors.set(parameter.name + "." + name, *tensor);
    if (name == "momentum_buffer") state.values[parameter.name + ".started"] = true;
  }
  return updates;
}

// The number of the file's entry `key`, which must be at least 0 and below 1e38.
double number_of(const Value& value, const std::string& key, const std::string& path) {
  double number = -1;
  if (const auto* real = std::get_if<double>(&value)) number = *real;
  if (const auto* whole = std::get_if<int64_t>(&value)) number = static_cast<double>(*whole);
  if (number >= 0 && number < 1e38) return number;
  fail_start(path, key + " is no number of at least 0 and below 1e38",
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
      if (scale->scale == 0) fail_start(path, name + " is 0", "drop the entry");
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

// One objective of the task.
struct Part {
  size_t index = 0;
  std::string name;
  OptimizerOptions options;
  Parameters own;
};

// The objectives by their optimizer.init_from; those without are left out.
std::map<std::string, std::vector<Part>> parts_by_file(const Task& task, const RunConfig& config) {
  const Parameters all = parameters_of(*task.module);
  std::map<std::string, std::vector<Part>> parts;
  size_t index = 0;
  for (const PhaseSpec& phase : task.phases) {
    for (const ObjectiveSpec& objective : phase.objectives) {
      Part part{index++, objective.name, with_defaults(optimizer_of(config, objective.name)), {}};
      if (part.options.init_from.empty()) continue;
      check_travels(part.options.kind);
      std::copy_if(all.begin(), all.end(), std::back_inserter(part.own),
                   [&](const auto& item) { return matches_any(objective.parameters, item.name); });
      parts[part.options.init_from].push_back(std::move(part));
    }
  }
  return parts;
}

// The optimizers of one file, and the objectives that start from it.
class OptimizerFile {
 public:
  OptimizerFile(const std::string& path, const std::vector<Part>& parts, const Task& task,
                const ModelOptions& options)
      : path_(path),
        parts_(parts),
        model_(parameters_of(*task.module)),
        options_(options),
        file_(read_weights(path)),
        optimizers_(torch_optimizers_of(file_, path)),
        scales_(loss_scales_of(file_.content, path)) {
    if (!optimizers_.empty()) return;
    fail_start(path, "it holds no optimizer (no param_groups)",
               "save {\"model\": …, \"optimizer\": optimizer.state_dict()} with torch.save");
  }

  // `all`: every objective of the task starts from this file.
  void read(bool all, OptimizerStart& start) const {
    if (optimizers_.size() > 1) {
      std::map<std::string, std::string> taken;  // the objective of each optimizer
      for (const Part& part : parts_) {
        const TorchOptimizer& own = fitting(part);
        const auto [entry, is_new] = taken.emplace(own.name, part.name);
        if (!is_new) {
          fail_start(path_,
                     fmt::format("its optimizer {} fits both objectives {} and {}", own.name,
                                 entry->second, part.name),
                     fmt::format("save that of each in a file of its own, for "
                                 "objectives.{}.optimizer.init_from",
                                 part.name));
        }
        read_one(own, part.own, {part}, all && parts_.size() == 1, start);
      }
      return;
    }
    const auto is_theirs = [&](const NamedParameter& item) {
      return std::any_of(parts_.begin(), parts_.end(),
                         [&](const Part& part) { return has(part, item.name); });
    };
    Parameters own;
    for (const auto& item : model_) {
      if (all || is_theirs(item)) own.push_back(item);
    }
    read_one(optimizers_.front(), own, parts_, all, start);
  }

 private:
  static bool has(const Part& part, const std::string& parameter) {
    return std::any_of(part.own.begin(), part.own.end(),
                       [&](const NamedParameter& item) { return item.name == parameter; });
  }

  // The options of the objective that has the parameter; of the first if none has it.
  static const OptimizerOptions& options_for(const std::string& parameter,
                                             const std::vector<Part>& parts) {
    const auto found = std::find_if(parts.begin(), parts.end(),
                                    [&](const Part& part) { return has(part, parameter); });
    return found == parts.end() ? parts.front().options : found->options;
  }

  // Takes over the state of an optimizer that `parts` share, and returns a text about it.
  std::string take(const TorchOptimizer& optimizer, const Parameters& own,
                   const std::vector<Part>& parts, State& state) const {
    std::map<std::string, double> decays;
    for (const Part& part : parts) {
      const auto values = parameter_values(part.options, model_);
      for (size_t i = 0; i < values.size(); ++i) {
        if (!has(part, model_[i].name) && decays.count(model_[i].name) > 0) continue;
        decays[model_[i].name] = values[i].weight_decay;
      }
    }
    const auto numbers = numbered(optimizer, own, decays, options_, file_, path_);
    int64_t taken = 0;
    double updates = -1;
    for (const auto& [number, theirs] : optimizer.state) {
      const auto parameter = numbers.find(number);
      if (parameter == numbers.end()) {
        fail_start(path_, "two of its parameters have one name", "save it again with torch.save");
      }
      const OptimizerOptions& options = options_for(parameter->second.name, parts);
      updates = std::max(updates, take_over(theirs, parameter->second, options, path_, state));
      taken += theirs.tensors.empty() || kept_by(options).empty() ? 0 : 1;
    }
    std::string text = fmt::format("state of {} of {} parameters from {}", to_text(taken),
                                   to_text(std::ssize(own)), path_);
    if (updates >= 0) text += fmt::format(", {} updates", to_text(updates));
    return text;
  }

  void read_one(const TorchOptimizer& optimizer, const Parameters& own,
                const std::vector<Part>& parts, bool all, OptimizerStart& start) const {
    std::string text = take(optimizer, own, parts, start.state);
    for (const Part& part : parts) {
      const bool is_only = parts_.size() == 1 && scales_.size() == 1;
      if (!is_only && part.index >= scales_.size()) continue;
      const LossScale& scale = scales_[is_only ? 0 : part.index];
      start.loss_scales[part.index] = scale;
      text += fmt::format("; loss scale {}, {} updates without overflow (for a dynamic one)",
                          to_text(scale.scale), to_text(scale.quiet_steps));
    }
    std::vector<std::string> told, names;
    for (const Part& part : parts) {
      names.push_back(part.name);
      for (const auto& difference : differences(optimizer, part.options, path_)) {
        if (std::find(told.begin(), told.end(), difference) != told.end()) continue;
        told.push_back(difference);
        text += "; " + difference;
      }
    }
    const std::string whose = all ? "" : fmt::format("objectives.{}.", join(names, "|"));
    start.lines.push_back({whose + "optimizer_state", "", Source::asked, text});
  }

  // The one of several optimizers that fits the objective.
  const TorchOptimizer& fitting(const Part& part) const {
    std::vector<const TorchOptimizer*> found;
    std::vector<std::string> names, reasons;
    for (const TorchOptimizer& optimizer : optimizers_) {
      try {
        State unused;
        take(optimizer, part.own, {part}, unused);
        found.push_back(&optimizer);
        names.push_back(optimizer.name);
      } catch (const CheckpointError& error) {
        reasons.push_back(fmt::format("{}: {}", optimizer.name, error.what()));
      }
    }
    if (found.size() == 1) return *found.front();
    // Checkpoints keep further ones deeper inside: "best.optimizer" beside "optimizer".
    const auto is_outer = [](const auto* one) { return one->name.find('.') == std::string::npos; };
    if (std::count_if(found.begin(), found.end(), is_outer) == 1) {
      return **std::find_if(found.begin(), found.end(), is_outer);
    }
    if (found.empty()) {
      fail_start(path_,
                 fmt::format("none of its {} optimizers fits the objective {} ({})",
                             to_text(std::ssize(optimizers_)), part.name, join(reasons, "; ")),
                 "set the optimizer's options to what made it, or drop optimizer.init_from");
    }
    fail_start(path_,
               fmt::format("its optimizers {} all fit the objective {}", join(names), part.name),
               fmt::format("save each in a file of its own, for "
                           "objectives.{}.optimizer.init_from",
                           part.name));
  }

  const std::string& path_;
  const std::vector<Part>& parts_;
  Parameters model_;
  const ModelOptions& options_;
  WeightsFile file_;
  std::vector<TorchOptimizer> optimizers_;
  std::vector<LossScale> scales_;
};

}  // namespace

OptimizerStart read_optimizer_start(const Task& task, const RunConfig& config) {
  size_t objectives = 0;
  for (const PhaseSpec& phase : task.phases) objectives += phase.objectives.size();
  OptimizerStart start;
  start.loss_scales.resize(objectives);
  for (const auto& [path, parts] : parts_by_file(task, config)) {
    OptimizerFile(path, parts, task, config.model).read(parts.size() == objectives, start);
  }
  return start;
}

bool starts_from_torch(const RunConfig& config) {
  return !config.optimizer.init_from.empty() ||
         std::any_of(config.objectives.begin(), config.objectives.end(),
                     [](const auto& own) { return !own.second.optimizer.init_from.empty(); });
}

void start_optimizer(RunState& run, const OptimizerStart& start) {
  size_t index = 0;
  for (auto& phase : run.phases) {
    for (auto& objective : phase.objectives) {
      load_known(objective, "", StoredState(start.state, {}));
      const auto& scale = start.loss_scales.at(index++);
      if (scale) objective.scaler.start_from(*scale);
    }
  }
}

}  // namespace tanren
