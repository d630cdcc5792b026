#include "tanren/train/run_state.h"

#include "tanren/base/error.h"
#include "tanren/base/generators.h"
#include "tanren/base/random.h"
#include "tanren/checkpoint/check_tensors.h"
#include "tanren/train/sharded_state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace tanren {

namespace {

// Moves every entry of `part` into `whole` under "prefix.".
void merge(State& whole, const std::string& prefix, const State& part) {
  for (const auto& [name, tensor] : part.tensors) whole.tensors.set(prefix + "." + name, tensor);
  for (const auto& [name, value] : part.values) whole.values[prefix + "." + name] = value;
}

}  // namespace

TensorMap RunState::model_tensors() const {
  settle();
  TensorMap tensors;
  for (const auto& item : task.module->named_parameters()) {
    if (holds(item.key())) tensors.set(item.key(), item.value().detach());
  }
  for (const auto& item : task.module->named_buffers()) {
    if (holds(item.key())) tensors.set(item.key(), item.value());
  }
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

namespace {

TensorMap owned_by(const RunState& run, const TensorMap& tensors) {
  if (run.stage == nullptr) return tensors;
  TensorMap owned;
  for (const auto& [name, tensor] : tensors) {
    if (run.owns(name)) owned.set(name, tensor);
  }
  return owned;
}

}  // namespace

TensorMap RunState::model_to_write() const { return owned_by(*this, model_tensors()); }

SlicedState RunState::optimizer_to_write() const {
  SlicedState own;
  for (const auto& phase : phases) {
    for (const auto& objective : phase.objectives) {
      const auto start = phase.spec.name + "." + objective.spec.name + ".";
      const auto [state, slices] = state_to_write(objective, start);
      for (const auto& [name, tensor] : state.tensors) own.state.tensors.set(name, tensor);
      own.state.values.insert(state.values.begin(), state.values.end());
      own.slices.insert(own.slices.end(), slices.begin(), slices.end());
    }
  }
  return own;
}

State RunState::average_to_write() const {
  const State own = average_state();
  return {owned_by(*this, own.tensors), own.values};
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
      const TensorMap averages = under_all_names(part.tensors);
      for (const auto& [name, tensor] : averages) state.tensors.set(name, tensor);
      for (const auto& [name, value] : part.values) {
        state.values[phase.spec.name + "." + objective.spec.name + "." + name] = value;
      }
      if (objective.average->num_updates() > 0) continue;
      std::string names;
      for (const auto& [name, tensor] : averages) names += name + "\n";
      state.values[phase.spec.name + "." + objective.spec.name + "." + kNoAverage] = names;
    }
  }
  return state;
}

TensorMap RunState::averaged_tensors() const {
  TensorMap tensors = model_tensors();
  for (const auto* average : averages()) {
    if (average->num_updates() == 0) continue;
    for (const auto& [name, tensor] : under_all_names(average->state().tensors)) {
      tensors.set(name, tensor);
    }
  }
  return tensors;
}

TensorMap RunState::under_all_names(const TensorMap& tensors) const {
  const auto named = {task.module->named_parameters(), task.module->named_buffers()};
  std::unordered_map<const at::TensorImpl*, at::Tensor> found;
  for (const auto& list : named) {
    for (const auto& item : list) {
      const at::Tensor* const tensor = tensors.find(item.key());
      if (tensor != nullptr) found.try_emplace(item.value().unsafeGetTensorImpl(), *tensor);
    }
  }
  TensorMap all = tensors;
  for (const auto& list : named) {
    for (const auto& item : list) {
      const auto own = found.find(item.value().unsafeGetTensorImpl());
      if (own != found.end() && holds(item.key())) all.set(item.key(), own->second);
    }
  }
  return all;
}

State RunState::run_state(at::Device device) const {
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
  std::string scales;
  for (const std::string& name : task.input_scales) scales += name + "\n";
  if (!scales.empty()) state.values[kInputScales] = scales;
  for (const auto& item : task.module->named_parameters()) {
    state.values["requires_grad." + item.key()] = item.value().requires_grad();
  }
  for (const auto& item : task.module->named_modules()) {
    state.values["training." + item.key()] = item.value()->is_training();
  }
  for (const auto& [name, generator] : generator_states(device)) {
    state.tensors.set("generator." + name, generator);
  }
  return state;
}

void RunState::load_model(const TensorMap& tensors, const std::string& what) {
  const auto mine = model_tensors();
  TensorMap given;  // those that this rank holds
  for (const auto& [name, tensor] : tensors) {
    if (holds(name)) given.set(name, tensor);
  }
  check_names_and_shapes(mine, given, what);
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : mine) at::Tensor(tensor).copy_(given.at(name));
}

void RunState::load(at::Device device, const State& model, const State& optimizer, const State& run,
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
      if (!objective.trains) {
        // The optimizer's state is of no use.
      } else if (slices.empty() && !objective.shards) {
        const State whole = part_below(optimizer, path);
        objective.optimizer->load(stage == nullptr ? whole : state_of_updated(objective, whole));
      } else {
        load_ranges(objective, path + ".", stored);
      }
      objective.scaler.load(part_below(run, "objective." + path + ".scaler"));
      objective.guard.load(part_below(run, "objective." + path + ".guard"));
      objective.plateau.load(part_below(run, "objective." + path + ".schedule"));
      objective.step = value_of<int64_t>(run, "objective." + path + ".step");
      if (objective.average) {
        // The file has every objective's averages; this objective loads its own.
        State part = part_below({{}, average.values}, path);
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
  selection.load(part_below(run, "selection"));
  set_generator_states(device, part_below(run, "generator").tensors);
}

void Phase::choose_parameters(Communicator* ranks) {
  reducer.reset();
  stage_shapes = {};
  for (auto& objective : objectives) objective.choose_parameters(ranks);
}

bool Phase::begin_turn(int64_t attempt) {
  bool any = false;
  for (auto& objective : objectives) {
    objective.in_turn = (attempt + 1) % objective.spec.every == 0;
    any = any || objective.in_turn;
  }
  return any;
}

std::vector<Objective*> Phase::in_turn() {
  std::vector<Objective*> found;
  for (auto& objective : objectives) {
    if (objective.in_turn) found.push_back(&objective);
  }
  return found;
}

bool RunState::has_several_objectives() const {
  return phases.size() > 1 || phases.front().objectives.size() > 1;
}

uint64_t RunState::seed_of(const Phase& phase) const {
  const auto index = static_cast<uint64_t>(&phase - phases.data());
  return index == 0 ? seed : random_bits(seed, /*stream=*/index, /*index=*/0);
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
