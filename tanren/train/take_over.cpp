#include "tanren/train/take_over.h"

#include "tanren/base/generators.h"
#include "tanren/train/freezing.h"
#include "tanren/train/sharded_state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <string_view>
#include <utility>

namespace tanren {

namespace {

std::string path_of(const Phase& phase, const Objective& objective) {
  return phase.spec.name + "." + objective.spec.name;
}

// The name of the parameter's fp32 copy in the checkpoint's state. Looks at this objective first,
// then at the checkpoint's other objectives. Empty if there is no copy.
std::string kept_copy(const std::string& parameter, const std::string& path, const Snapshot& from,
                      const StoredState& stored) {
  std::vector<std::string> paths{path};
  constexpr std::string_view kStart = "objective.", kEnd = ".step";
  for (const auto& [key, value] : from.run.values) {
    if (!key.starts_with(kStart) || !key.ends_with(kEnd)) continue;
    paths.push_back(key.substr(kStart.size(), key.size() - kStart.size() - kEnd.size()));
  }
  for (const std::string& each : paths) {
    std::string name = each + "." + parameter;
    if (stored.has(name, kMasterWeight)) return name;
  }
  return "";
}

// The checkpoint's values of the objective's weights that this rank holds, each under its name in
// the optimizer's state. Takes the fp32 copy if any of the checkpoint's objectives has one.
TensorMap widest_weights(const RunState& run, const Objective& objective, const std::string& path,
                         const Snapshot& from, const StoredState& stored) {
  TensorMap weights;
  for (const NamedParameter& parameter : objective.all) {
    if (!run.holds(parameter.name)) continue;
    const std::string name = path + "." + parameter.name;
    at::Tensor weight = from.model.tensors.at(parameter.name);
    const std::string kept = kept_copy(parameter.name, path, from, stored);
    if (!kept.empty()) {
      const auto sizes = parameter.tensor.sizes().vec(), strides = parameter.tensor.strides().vec();
      const StateRange whole{kept, 0, parameter.tensor.numel(), sizes, strides};
      weight = stored.range(whole, kMasterWeight).as_strided(sizes, strides);
    }
    weights.set(name + "." + kMasterWeight, weight);
  }
  return weights;
}

void take_weights(RunState& run, const Snapshot& from, const StoredState& stored) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : run.model_tensors()) {
    at::Tensor(tensor).copy_(from.model.tensors.at(name));
  }
  for (Phase& phase : run.phases) {
    for (Objective& objective : phase.objectives) {
      const std::string path = path_of(phase, objective);
      const State copies{widest_weights(run, objective, path, from, stored), {}};
      for (const NamedParameter& parameter : objective.all) {
        if (!run.holds(parameter.name)) continue;
        const std::string name = path + "." + parameter.name + "." + kMasterWeight;
        at::Tensor(parameter.tensor).detach().copy_(copies.tensors.at(name));
      }
      if (!objective.master_weights) continue;
      objective.optimizer->parameters_written();
      load_known(objective, path + ".", StoredState(copies, {}));
    }
  }
}

void take_flags(RunState& run, const Snapshot& from) {
  bool chosen_anew = false;
  for (auto& item : run.task.module->named_parameters()) {
    const bool trained = value_of<bool>(from.run, "requires_grad." + item.key());
    chosen_anew = chosen_anew || trained != item.value().requires_grad();
    item.value().set_requires_grad(trained);
  }
  for (Phase& phase : run.phases) {
    if (chosen_anew) phase.choose_parameters();
  }
  for (auto& item : run.task.module->named_modules()) {
    // train() sets the children too; they come later in the list and get their own flag then.
    const auto flag = from.run.values.find("training." + item.key());
    if (flag != from.run.values.end()) item.value()->train(std::get<bool>(flag->second));
  }
}

// Unfreezes everything that is unfrozen up to and including the next update, so that the optimizer
// has a place for the state of these parameters.
void unfreeze_past(RunState& run, const FreezePlan& freeze) {
  for (const Unfreeze& due : freeze.unfreezes) {
    if (due.step > run.step()) continue;
    unfreeze(run, {.unfreezes = {{run.step(), due.parameters}}}, /*tells=*/false);
  }
}

void take_average(WeightAverage& average, const std::string& path, const State& from) {
  State part = part_below({{}, from.values}, path);
  for (const auto& [name, own] : average.state().tensors) {
    const at::Tensor* tensor = from.tensors.find(name);
    if (tensor == nullptr) return;  // the whole average starts again
    part.tensors.set(name, tensor->to(own.scalar_type()));
  }
  average.load(part);
}

// `scale_only`: the comparison starts again, and the rate stays reduced.
void take_plateau(Plateau& plateau, State state, bool scale_only) {
  if (state.values.count("scale") == 0) return;  // there was none
  if (scale_only) {
    state.values.erase("best");
    state.values["num_bad"] = int64_t{0};
    state.values["cooldown"] = int64_t{0};
  }
  plateau.load(state);
}

}  // namespace

std::vector<std::string> take_over(RunState& run, at::Device device, const Snapshot& from,
                                   const TakenParts& parts, const FreezePlan& freeze) {
  std::vector<std::string> left;
  for (Phase& phase : run.phases) {
    for (Objective& objective : phase.objectives) {
      const std::string path = path_of(phase, objective);
      const auto step = parts.steps.find(path);
      if (step != parts.steps.end()) {
        objective.step = step->second;
      } else if (parts.objectives.count(path) > 0) {
        objective.step = value_of<int64_t>(from.run, "objective." + path + ".step");
      }
    }
  }
  if (parts.flags) {
    take_flags(run, from);
  } else {
    unfreeze_past(run, freeze);
  }
  take_weights(run, from, StoredState(from.optimizer, from.slices));
  for (Phase& phase : run.phases) {
    for (Objective& objective : phase.objectives) {
      const std::string path = path_of(phase, objective);
      const auto taken = parts.objectives.find(path);
      if (taken == parts.objectives.end()) continue;
      const State own = part_below(from.run, "objective." + path);
      objective.scaler.load(part_below(own, "scaler"));
      objective.guard.load(part_below(own, "guard"));
      if (taken->second.plateau || taken->second.plateau_scale) {
        take_plateau(objective.plateau, part_below(own, "schedule"), !taken->second.plateau);
      }
      if (taken->second.optimizer) {
        const auto own_left = load_fitting(objective, path, from.optimizer, from.slices);
        left.insert(left.end(), own_left.begin(), own_left.end());
      }
      if (taken->second.average && objective.average) {
        take_average(*objective.average, path, from.average);
      }
    }
  }
  run.attempt = value_of<int64_t>(from.run, "attempt");
  if (parts.position) {
    run.epoch = value_of<int64_t>(from.run, "epoch");
    run.consumed = value_of<int64_t>(from.run, "consumed");
  }
  if (parts.evaluations) run.selection.load(part_below(from.run, "selection"));
  run.selection.best.clear();
  if (parts.random) {
    set_generator_states(device, part_below(from.run, "generator").tensors);
  }
  return left;
}

}  // namespace tanren
