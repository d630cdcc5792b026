#include "tanren/train/run_state.h"

#include "tanren/base/error.h"
#include "tanren/base/generators.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/names.h"
#include "tanren/checkpoint/check_tensors.h"
#include "tanren/train/sharded_state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

namespace tanren {

namespace {

// Moves every entry of `part` into `whole` under "prefix.".
void merge(State& whole, const std::string& prefix, const State& part) {
  for (const auto& [name, tensor] : part.tensors) whole.tensors.set(prefix + "." + name, tensor);
  for (const auto& [name, value] : part.values) whole.values[prefix + "." + name] = value;
}

State extract(const State& whole, const std::string& prefix) {
  State part;
  const std::string start = prefix + ".";
  for (const auto& [name, tensor] : whole.tensors) {
    if (name.rfind(start, 0) == 0) part.tensors.set(name.substr(start.size()), tensor);
  }
  for (const auto& [name, value] : whole.values) {
    if (name.rfind(start, 0) == 0) part.values[name.substr(start.size())] = value;
  }
  return part;
}

}  // namespace

at::Device RunState::device() const {
  return phases.front().objectives.front().parameters.front().tensor.device();
}

TensorMap RunState::model_tensors() const {
  settle();
  TensorMap tensors;
  for (const auto& item : task.module->named_parameters())
    tensors.set(item.key(), item.value().detach());
  for (const auto& item : task.module->named_buffers()) tensors.set(item.key(), item.value());
  return tensors;
}

State RunState::optimizer_state() const {
  State state;
  for (const auto& phase : phases) {
    for (const auto& objective : phase.objectives) {
      merge(state, phase.spec.name + "." + objective.spec.name, objective.optimizer->state());
    }
  }
  return state;
}

std::vector<StateSlice> RunState::optimizer_slices() const {
  std::vector<StateSlice> slices;
  for (const auto& phase : phases) {
    for (const auto& objective : phase.objectives) {
      if (!objective.shards) continue;
      const auto own = slices_in(objective, phase.spec.name + "." + objective.spec.name + ".");
      slices.insert(slices.end(), own.begin(), own.end());
    }
  }
  return slices;
}

std::vector<WeightAverage*> RunState::averages() const {
  std::vector<WeightAverage*> averages;
  for (const auto& phase : phases) {
    for (const auto& objective : phase.objectives) {
      if (objective.average) averages.push_back(objective.average.get());
    }
  }
  return averages;
}

State RunState::average_state() const {
  State state;
  for (const auto& phase : phases) {
    for (const auto& objective : phase.objectives) {
      if (!objective.average) continue;
      const State part = objective.average->state();
      for (const auto& [name, tensor] : part.tensors) state.tensors.set(name, tensor);
      for (const auto& [name, value] : part.values) {
        state.values[phase.spec.name + "." + objective.spec.name + "." + name] = value;
      }
    }
  }
  return state;
}

TensorMap RunState::averaged_tensors() const {
  TensorMap tensors = model_tensors();
  for (const auto* average : averages()) {
    if (average->num_updates() == 0) continue;
    for (const auto& [name, tensor] : average->state().tensors) tensors.set(name, tensor);
  }
  return tensors;
}

State RunState::run_state() const {
  State state;
  state.values["seed"] = static_cast<int64_t>(seed);
  state.values["attempt"] = attempt;
  state.values["epoch"] = epoch;
  state.values["consumed"] = consumed;
  for (const auto& phase : phases) {
    for (const auto& objective : phase.objectives) {
      const auto prefix = "objective." + phase.spec.name + "." + objective.spec.name;
      merge(state, prefix + ".scaler", objective.scaler.state());
      merge(state, prefix + ".guard", objective.guard.state());
      merge(state, prefix + ".schedule", objective.plateau.state());
      state.values[prefix + ".step"] = objective.step;
    }
  }
  merge(state, "selection", selection.state());
  for (const auto& item : task.module->named_parameters()) {
    state.values["requires_grad." + item.key()] = item.value().requires_grad();
  }
  for (const auto& item : task.module->named_modules()) {
    state.values["training." + item.key()] = item.value()->is_training();
  }
  for (const auto& [name, generator] : generator_states(device())) {
    state.tensors.set("generator." + name, generator);
  }
  return state;
}

void RunState::load_model(const TensorMap& tensors, const std::string& what) {
  const auto mine = model_tensors();
  check_names_and_shapes(mine, tensors, what);
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : mine) at::Tensor(tensor).copy_(tensors.at(name));
}

void RunState::load(const State& model, const State& optimizer, const State& run,
                    const State& average, const std::vector<StateSlice>& slices) {
  const StoredState stored(optimizer, slices);
  load_model(model.tensors, "the checkpoint");
  bool chosen_anew = false;
  for (auto& item : task.module->named_parameters()) {
    const bool trained = value_of<bool>(run, "requires_grad." + item.key());
    chosen_anew = chosen_anew || trained != item.value().requires_grad();
    item.value().set_requires_grad(trained);
  }
  for (auto& phase : phases) {
    if (chosen_anew) phase.choose_parameters();
    for (auto& objective : phase.objectives) {
      const auto path = phase.spec.name + "." + objective.spec.name;
      if (slices.empty() && !objective.shards) {
        objective.optimizer->load(extract(optimizer, path));
      } else {
        load_ranges(objective, path + ".", stored);
      }
      objective.scaler.load(extract(run, "objective." + path + ".scaler"));
      objective.guard.load(extract(run, "objective." + path + ".guard"));
      objective.plateau.load(extract(run, "objective." + path + ".schedule"));
      objective.step = value_of<int64_t>(run, "objective." + path + ".step");
      if (objective.average) {
        // The file has every objective's averages; this objective loads its own.
        State part = extract({{}, average.values}, path);
        for (const auto& [name, own] : objective.average->state().tensors) {
          if (const auto* tensor = average.tensors.find(name)) part.tensors.set(name, *tensor);
        }
        objective.average->load(part);
      }
    }
  }
  for (auto& item : task.module->named_modules()) {
    // train() sets the children too; they come later in the list and get their own flag then.
    item.value()->train(value_of<bool>(run, "training." + item.key()));
  }
  seed = static_cast<uint64_t>(value_of<int64_t>(run, "seed"));
  attempt = value_of<int64_t>(run, "attempt");
  epoch = value_of<int64_t>(run, "epoch");
  consumed = value_of<int64_t>(run, "consumed");
  selection.load(extract(run, "selection"));
  set_generator_states(device(), extract(run, "generator").tensors);
}

void Phase::choose_parameters(Communicator* ranks) {
  reducer.reset();
  for (auto& objective : objectives) objective.choose_parameters(ranks);
}

namespace {

// Replaces the parameters in `updated` by this rank's slices of them.
void share_update(Objective& objective) {
  const std::vector<NamedParameter> whole = std::move(objective.updated);
  objective.shards = std::make_unique<ShardedParameters>(objective.gradients);
  objective.updated.clear();
  size_t next = 0;
  for (const Slice& slice : objective.gradients.slices()) {
    const NamedParameter& parameter = whole[slice.parameter];
    objective.updated.push_back({.name = parameter.name + "@" + std::to_string(slice.begin),
                                 .tensor = objective.shards->owned()[next++],
                                 .whole_name = parameter.name,
                                 .whole = parameter.tensor,
                                 .begin = slice.begin});
  }
}

}  // namespace

void Objective::choose_parameters(Communicator* ranks) {
  std::vector<NamedParameter> chosen;
  std::vector<at::Tensor> tensors;
  for (const auto& parameter : all) {
    if (!parameter.tensor.requires_grad()) {
      at::Tensor(parameter.tensor).mutable_grad().reset();
      continue;
    }
    chosen.push_back(parameter);
    tensors.push_back(parameter.tensor);
  }
  if (chosen.empty()) {
    throw ConfigError("[train] objective " + spec.name + " has no parameter to train (patterns " +
                      join(spec.parameters) + "); unfreeze some or mend the patterns");
  }
  SlicedState kept;
  if (shards) {
    shards->wait();
    kept = {optimizer->state(), slices_in(*this, "")};
  }
  shards.reset();
  gradients = Gradients(tensors, sharding);
  updated = chosen;
  if (sharding.on()) share_update(*this);
  const MemoryScope memory(MemoryKind::optimizer);
  auto made = make_optimizer(optimizer_options, updated, all);
  if (optimizer && !sharding.on()) {
    State state = made->state();
    const State before = optimizer->state();
    const TensorMap own = state.tensors;
    for (const auto& [name, tensor] : own) {
      if (const auto* kept = before.tensors.find(name)) state.tensors.set(name, *kept);
    }
    for (auto& [name, value] : state.values) {
      const auto kept = before.values.find(name);
      if (kept != before.values.end()) value = kept->second;
    }
    made->load(state);
  }
  const auto before = std::exchange(optimizer, std::move(made));  // `kept` is this one's state
  parameters = std::move(chosen);
  if (before && sharding.on() && ranks != nullptr) take_over_state(*this, kept, *ranks);
}

const std::vector<uint8_t>* Objective::active(std::vector<uint8_t>& kept) const {
  const auto* flags = gradients.active();
  if (flags == nullptr || !shards) return flags;
  kept.clear();
  for (const Slice& slice : gradients.slices()) kept.push_back((*flags)[slice.parameter]);
  return &kept;
}

std::vector<ShardedParameters*> RunState::gathering() const {
  std::vector<ShardedParameters*> found;
  for (const auto& phase : phases) {
    for (const auto& objective : phase.objectives) {
      if (objective.shards && objective.shards->num_gathering() > 0) {
        found.push_back(objective.shards.get());
      }
    }
  }
  return found;
}

void RunState::settle() const {
  for (ShardedParameters* shards : gathering()) shards->wait();
}

}  // namespace tanren
