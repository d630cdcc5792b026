// The kinds that the library has, one row each: what the checks of a config, the plan, the forecast
// and the reports know about a kind without building it. Rows are in the order in which errors list
// them. Torch-free. The code that computes a kind is a file of its room; CONTRIBUTING.md lists the
// places to change for a kind.
#pragma once

#include "tanren/config/run_config.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tanren {

using Keys = std::vector<std::string>;

// A value that an optimizer keeps for every element of a parameter.
struct Moment {
  std::string name;
  bool (*is_kept)(const OptimizerOptions&) = nullptr;  // null: always
};

struct OptimizerKind {
  std::string name;
  Keys keys;  // keys of its section that it reads and some other kind does not
  std::vector<Moment> moments;
  Keys scalars;  // names of fp32 numbers, one per parameter each
  // Operations to update one element, by its formula; 0: depends on the matrices.
  int64_t flops = 0;
  // Defaults of options that are not set.
  double weight_decay = 0, beta2 = 0.999, eps = 1e-8, momentum = 0;
  bool nesterov = false;
  bool decouples_decay = false;  // weight decay shrinks the weights and is not added to gradients
  bool is_factored = false;      // keeps sums over rows and columns
  bool leaves_some_to_adamw = false;  // AdamW updates optimizer.adamw_parameters and 1-dim ones
  std::string whole;  // what one rank must update as a whole; empty: single elements
  std::string state;  // its state in words; empty: as in `moments`
};

struct ScheduleKind {
  std::string name;
  Keys keys;                                     // as in OptimizerKind
  Keys shapes = {"cosine", "linear", "1-sqrt"};  // words of schedule.shape
  bool reads_evaluations = false;
};

struct ModelKind {
  std::string name;
  Keys keys;                   // as in OptimizerKind
  Keys sizes;                  // words of model.size
  std::vector<Keys> families;  // groups of sizes that differ only in size, largest first
  Keys tasks;                  // words of model.task; the last predicts tokens
  Keys no_use_to_tokens;       // keys that a task which predicts tokens does not read
  std::string default_task;
  std::string widths;      // the key that lists the widths of its layers
  bool generates = false;  // it can generate text if its task is next_token
  bool is_convolutional = false;
  bool has_instance_norm = false;  // has it, and pads by mirrored pixels
  bool is_recurrent = false;
  bool uses_weights_once = false;  // once per sample, so that replicas in threads gain nothing
};

struct DatasetKind {
  std::string name;
  bool has_encoding = false;    // a file of text: data.encoding
  bool counts_classes = false;  // labels are whole numbers; the largest gives their number
  bool has_context = false;     // a sample is a sequence of data.*.context tokens
  bool is_stream = false;       // its files are one stream of tokens, from which samples are cut
};

const std::vector<OptimizerKind>& optimizer_kinds();
const std::vector<ScheduleKind>& schedule_kinds();
const std::vector<ModelKind>& model_kinds();
const std::vector<DatasetKind>& dataset_kinds();
const Keys& loss_kinds();

// The row of that name. Null for a kind that a program registered, and for a misspelt one.
template <typename Kind>
const Kind* find_kind(const std::vector<Kind>& kinds, std::string_view name) {
  const auto found =
      std::find_if(kinds.begin(), kinds.end(), [&](const Kind& kind) { return kind.name == name; });
  return found == kinds.end() ? nullptr : &*found;
}
inline const OptimizerKind* optimizer_kind(std::string_view name) {
  return find_kind(optimizer_kinds(), name);
}
inline const ScheduleKind* schedule_kind(std::string_view name) {
  return find_kind(schedule_kinds(), name);
}
inline const ModelKind* model_kind(std::string_view name) { return find_kind(model_kinds(), name); }

inline const DatasetKind* dataset_kind(std::string_view name) {
  return find_kind(dataset_kinds(), name);
}

template <typename Kind>
Keys names_of(const std::vector<Kind>& kinds) {
  Keys names;
  for (const Kind& kind : kinds) names.push_back(kind.name);
  return names;
}

template <typename Kind>
bool reads(const Kind& kind, std::string_view key) {
  return std::find(kind.keys.begin(), kind.keys.end(), key) != kind.keys.end();
}

// Keys that some row of `kinds` reads and `kind` does not, in the order of the rows.
template <typename Kind>
Keys unread_keys(const std::vector<Kind>& kinds, const Kind& kind) {
  Keys unread;
  for (const Kind& other : kinds) {
    for (const std::string& key : other.keys) {
      const bool is_new = std::find(unread.begin(), unread.end(), key) == unread.end();
      if (!reads(kind, key) && is_new) unread.push_back(key);
    }
  }
  return unread;
}

// The model's task: model.task or, if that is empty, its kind's default. Empty for kinds without
// tasks.
inline std::string task_of(const ModelOptions& model) {
  const ModelKind* kind = model_kind(model.kind);
  return model.task.empty() && kind != nullptr ? kind->default_task : model.task;
}

// Whether the model predicts tokens, and so has no classes.
inline bool guesses_tokens(const ModelOptions& model) {
  const std::string task = task_of(model);
  return task == "next_token" || task == "masked_lm";
}

// Whether the learning rate depends on the results of evaluations.
inline bool reads_evaluations(const ScheduleOptions& schedule) {
  const ScheduleKind* kind = schedule_kind(schedule.kind);
  return kind != nullptr && kind->reads_evaluations;
}

// Whether this holds for the run's own schedule or that of some objective.
inline bool reads_evaluations(const RunConfig& config) {
  return reads_evaluations(config.schedule) ||
         std::any_of(config.objectives.begin(), config.objectives.end(),
                     [](const auto& entry) { return reads_evaluations(entry.second.schedule); });
}

// Whether optimizer.state may be other than fp32.
inline bool packs_state(const OptimizerOptions& optimizer) {
  const OptimizerKind* kind = optimizer_kind(optimizer.kind);
  return kind != nullptr && reads(*kind, "state");
}

// Sets optimizer.state as --set does. The run's optimizer must support the choice. Objectives that
// have the run's value get the new one if their optimizer supports it.
inline void set_state(RunConfig& config, const std::string& state) {
  const std::string before = std::exchange(config.optimizer.state, state);
  for (auto& [name, own] : config.objectives) {
    const bool is_asked = config.asked.count("objectives." + name + ".optimizer.state") > 0;
    const bool has_runs_value = !is_asked && own.optimizer.state == before;
    if (has_runs_value && packs_state(own.optimizer)) own.optimizer.state = state;
  }
}

// The optimizer of the objective of that name.
inline const OptimizerOptions& optimizer_of(const RunConfig& config, const std::string& objective) {
  const auto own = config.objectives.find(objective);
  return own == config.objectives.end() ? config.optimizer : own->second.optimizer;
}

// Whether weight_decay shrinks the weights directly instead of being added to the gradients.
inline bool decouples_decay(const OptimizerOptions& optimizer) {
  const OptimizerKind* kind = optimizer_kind(optimizer.kind);
  return kind != nullptr && kind->decouples_decay;
}

// Names of the moments that an optimizer with `options` keeps. `options` must come from
// with_defaults().
Keys kept_moments(const OptimizerKind& kind, const OptimizerOptions& options);

// `options` with the defaults of its kind in place of unset values.
OptimizerOptions with_defaults(OptimizerOptions options);

}  // namespace tanren
