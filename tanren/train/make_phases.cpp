#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/model/check_task.h"
#include "tanren/optimizer/parameter_values.h"
#include "tanren/train/check_terms.h"
#include "tanren/train/run_state.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tanren {

namespace {

std::string module_of(const std::string& name) {
  const auto dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

// Whether a buffer belongs to parameters that match `patterns`. It belongs to the parameters of its
// module or, if that has none (batch norm without affine), of the nearest enclosing module that has
// some.
bool belongs(const std::string& buffer, const std::vector<std::string>& patterns,
             const std::vector<std::string>& parameters) {
  for (std::string module = module_of(buffer);; module = module_of(module)) {
    bool any = false;
    for (const auto& name : parameters) {
      if (!module.empty() && name.rfind(module + ".", 0) != 0) continue;
      any = true;
      if (matches_any(patterns, name)) return true;
    }
    if (any || module.empty()) return false;
  }
}

// The layer that has the buffer as a running statistic, by torch's names; otherwise null.
std::shared_ptr<const torch::nn::Module> norm_of(const torch::nn::Module& root,
                                                 const std::string& buffer) {
  const std::string module = module_of(buffer);
  const std::string last = buffer.substr(module.empty() ? 0 : module.size() + 1);
  if (last != "running_mean" && last != "running_var") return nullptr;
  return root.named_modules()[module];
}

// In a checkpoint the names of an objective's state begin with its phase's name and its own, so
// none of these paths may be a prefix of another.
void check_paths(const Task& task) {
  std::vector<std::string> paths;
  for (const auto& phase : task.phases) {
    for (const auto& objective : phase.objectives) {
      const std::string path = phase.name + "." + objective.name;
      for (const auto& other : paths) {
        const auto& [shorter, longer] = std::minmax(
            path, other, [](const auto& a, const auto& b) { return a.size() < b.size(); });
        if ((longer + ".").rfind(shorter + ".", 0) != 0) continue;
        throw ConfigError("[train] a checkpoint could not tell the objectives " + shorter +
                          " and " + longer +
                          " apart: one name begins the other; rename one of them");
      }
      paths.push_back(path);
    }
  }
}

const ObjectivePlan& plan_of(const std::string& name, const Plan& plan) {
  std::vector<std::string> known;
  for (const ObjectivePlan& objective : plan.objectives) {
    if (objective.name == name) return objective;
    known.push_back(objective.name);
  }
  throw ConfigError(
      fmt::format("[train] the plan has no objective {}, it has {}; make it of a profile with this "
                  "task's objectives (profile_objectives)",
                  name, join(known)));
}

// The task's objective, with the config's values in place of the task's.
ObjectiveSpec as_planned(ObjectiveSpec spec, const ObjectivePlan& plan) {
  spec.every = plan.every;
  for (WeightedTerm& term : spec.terms) {
    const auto own = plan.weights.find(term.name);
    if (own != plan.weights.end()) term.weight = own->second;
  }
  return spec;
}

// How the plan divides the update of an objective among the replicas of a stage.
Sharding sharding_of(const Plan& plan, const ObjectivePlan& objective, const StagePlan* stage) {
  constexpr int64_t kUnit = 16;         // elements: parts begin at cache lines
  constexpr int64_t kPackedUnit = 256;  // no block of packed state lies in two slices
  const ParallelPlan& parallel = plan.parallel;
  const int64_t rank = stage == nullptr ? parallel.rank : stage->replica;
  const int64_t replicas = stage == nullptr ? parallel.world_size : stage->replicas;
  if (parallel.zero == 0 || replicas == 1) return {.rank = rank};
  return {.rank = rank,
          .layout = {.first_bucket_bytes = parallel.first_bucket_bytes,
                     .bucket_bytes = parallel.bucket_bytes,
                     .parts = replicas,
                     .unit = objective.optimizer.state == "8bit" ? kPackedUnit : kUnit},
          .transient = parallel.zero > 1};
}

// Scales of inputs do not decay: a smaller one is no simpler.
NamedParameter named_parameter(const std::string& name, const at::Tensor& tensor,
                               const std::set<std::string>& scales) {
  return {.name = name, .tensor = tensor, .decays = scales.count(name) == 0};
}

// Whether a parameter is trained now or after a later unfreeze.
bool is_ever_trained(const NamedParameter& parameter, const FreezePlan& freeze) {
  if (parameter.tensor.requires_grad()) return true;
  return std::any_of(
      freeze.unfreezes.begin(), freeze.unfreezes.end(), [&](const Unfreeze& unfreeze) {
        return std::find(unfreeze.parameters.begin(), unfreeze.parameters.end(), parameter.name) !=
               unfreeze.parameters.end();
      });
}

// Buffers that belong to no objective's parameters (a frozen body's batch norm in training mode)
// are undone and shared over ranks with the first objective of each phase, since its forward may
// change them.
void give_unowned_buffers(const torch::nn::Module& module, const StagePlan* stage,
                          const std::set<std::string>& scales, std::vector<Phase>& phases) {
  std::set<const void*> owned;
  for (const auto& phase : phases) {
    for (const auto& objective : phase.objectives) {
      for (const auto& buffer : objective.buffers) {
        owned.insert(buffer.tensor.unsafeGetTensorImpl());
      }
    }
  }
  for (const auto& item : module.named_buffers()) {
    if (owned.count(item.value().unsafeGetTensorImpl()) > 0) continue;
    if (scales.count(item.key()) > 0) continue;
    if (stage != nullptr && !stage->holds(item.key())) continue;
    for (auto& phase : phases) {
      phase.objectives.front().buffers.push_back({item.value(), norm_of(module, item.key())});
    }
  }
}

}  // namespace

std::vector<Phase> make_phases(const Task& task, const Plan& plan, bool train,
                               const std::shared_ptr<const StagePlan>& stage) {
  check_task(task, "[train] this run");
  check_paths(task);
  std::vector<Phase> phases;
  std::set<std::string> taken;
  std::set<const at::TensorImpl*> averaged;  // statistics
  const auto holds = [&](const std::string& name) {
    return stage == nullptr || stage->holds(name);
  };
  const auto named = task.module->named_parameters();
  const auto names = named.keys();
  // A parameter that the module has registered twice is updated once, by its first name.
  std::set<std::string> second_names;
  std::set<const at::TensorImpl*> known;
  for (const auto& item : named) {
    const bool is_new = known.insert(item.value().unsafeGetTensorImpl()).second;
    if (!is_new) second_names.insert(item.key());
  }
  const std::set<std::string>& scales = task.input_scales;
  std::vector<NamedParameter> model;
  for (const auto& item : named) model.push_back(named_parameter(item.key(), item.value(), scales));
  for (const auto& phase_spec : task.phases) {
    Phase phase{phase_spec, {}};
    for (const auto& asked : phase_spec.objectives) {
      ObjectivePlan own = plan_of(asked.name, plan);
      const ObjectiveSpec spec = as_planned(asked, own);
      std::vector<NamedParameter> all, trained;
      for (const auto& item : named) {
        if (!matches_any(spec.parameters, item.key())) continue;
        if (second_names.count(item.key()) > 0) continue;
        all.push_back(named_parameter(item.key(), item.value(), scales));
        if (!is_ever_trained(all.back(), plan.freeze)) continue;
        if (!taken.insert(item.key()).second) {
          throw ConfigError("[train] parameter " + item.key() + " belongs to two objectives (" +
                            spec.name + " is the second); make their patterns disjoint");
        }
        if (holds(item.key())) trained.push_back(all.back());
      }
      std::vector<ObjectiveBuffer> buffers;
      std::vector<NamedParameter> statistics;
      for (const auto& item : task.module->named_buffers()) {
        if (!holds(item.key()) || !belongs(item.key(), spec.parameters, names)) continue;
        // A zero point never changes. If ranks shared it, an accelerator's zero point would be read
        // again.
        if (scales.count(item.key()) > 0) continue;
        buffers.push_back({item.value(), norm_of(*task.module, item.key())});
        // Constants are not averaged, because a mask's infinity minus itself is NaN. The statistics
        // of a norm that the module has registered twice are averaged once.
        if (buffers.back().norm != nullptr &&
            averaged.insert(item.value().unsafeGetTensorImpl()).second) {
          statistics.push_back({item.key(), item.value()});
        }
      }
      // The config's patterns and layers refer to the whole model.
      if (train) own.optimizer = options_of_part(own.optimizer, all, model, own.has_own_layers);
      phase.objectives.push_back({.spec = spec,
                                  .plan = own,
                                  .parameters = {},
                                  .all = std::move(all),
                                  .buffers = std::move(buffers),
                                  .trains = train,
                                  .gradients = Gradients(std::vector<at::Tensor>{}),
                                  .optimizer = nullptr,
                                  .scaler = LossScaler(plan.precision),
                                  .guard = Guard(plan.guard),
                                  .plateau = Plateau(own.schedule, own.optimizer.learning_rate),
                                  .sharding = sharding_of(plan, own, stage.get()),
                                  .stage = stage,
                                  .master_weights = plan.precision.master_weights});
      Objective& objective = phase.objectives.back();
      objective.choose_parameters();
      if (train && plan.average.kind != Averaging::none) {
        const MemoryScope memory(MemoryKind::averages);
        objective.average = std::make_unique<WeightAverage>(plan.average, trained, statistics);
      }
    }
    phase.tensors = names_of(*task.module);
    phases.push_back(std::move(phase));
  }
  give_unowned_buffers(*task.module, stage.get(), scales, phases);
  return phases;
}

}  // namespace tanren
