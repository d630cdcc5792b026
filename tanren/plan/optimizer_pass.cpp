#include "tanren/base/error.h"
#include "tanren/base/layer_order.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/kinds.h"
#include "tanren/config/metric_mode.h"
#include "tanren/plan/passes.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace tanren {

namespace {

int64_t elements(const std::vector<int64_t>& shape, size_t dims) {
  return std::accumulate(shape.begin(), shape.begin() + static_cast<int64_t>(dims), int64_t{1},
                         std::multiplies<>());
}

// Bytes of the state of one parameter whose elements have `size` bytes.
int64_t state_bytes(const OptimizerOptions& o, const ParameterFacts& parameter, int64_t size) {
  const auto& shape = parameter.shape;
  const int64_t all = elements(shape, shape.size());
  const bool packed = o.state != "fp32" && size == 4 && all >= kLeastPacked &&
                      !matches_any(o.fp32_state, parameter.name);
  if (packed && o.state == "bf16") return 4 * all + 4;
  if (packed) return 2 * (all + 4 * ((all + kPackedBlock - 1) / kPackedBlock)) + 4;
  const OptimizerKind* kind = optimizer_kind(o.kind);
  if (kind == nullptr) return 0;
  if (kind->is_factored) {  // over the last two dimensions
    if (shape.size() < 2) return all * size + 4;
    const int64_t rows = elements(shape, shape.size() - 1);
    return (rows + elements(shape, shape.size() - 2) * shape.back()) * size + 4;
  }
  if (kind->leaves_some_to_adamw &&
      (shape.size() < 2 || matches_any(o.adamw_parameters, parameter.name))) {
    kind = optimizer_kind("adamw");
  }
  return all * size * std::ssize(kept_moments(*kind, o)) + 4 * std::ssize(kind->scalars);
}

std::string described(const OptimizerOptions& o) {
  const OptimizerKind* kind = optimizer_kind(o.kind);
  if (kind == nullptr) return "none";
  if (!kind->state.empty()) return kind->state;
  const Keys moments = kept_moments(*kind, o);
  if (moments.empty()) return "none";
  return join(moments) + (o.state == "fp32" ? "" : " in " + o.state + " (small ones in fp32)");
}

// Whether a frozen parameter is unfrozen before the step `end`.
bool is_unfrozen(const Plan& plan, const std::string& name,
                 int64_t end = std::numeric_limits<int64_t>::max()) {
  return std::any_of(
      plan.freeze.unfreezes.begin(), plan.freeze.unfreezes.end(), [&](const Unfreeze& unfreeze) {
        return unfreeze.step < end &&
               std::find(unfreeze.parameters.begin(), unfreeze.parameters.end(), name) !=
                   unfreeze.parameters.end();
      });
}

// Throws for a pattern whose parameters are never trained: it would do nothing.
void check_groups(const Request& request, const Plan& plan, size_t index) {
  const ObjectivePlan& objective = plan.objectives[index];
  const auto own = parameters_of(request, index);
  for (const auto& group : objective.optimizer.groups) {
    for (const auto& pattern : group.parameters) {
      bool found = false, trained = false;
      for (const auto& parameter : request.profile.parameters) {
        if (!matches(pattern, parameter.name)) continue;
        found = true;
        trained = trained || parameter.trained || is_unfrozen(plan, parameter.name);
      }
      const bool is_own = std::any_of(own.begin(), own.end(), [&](const ParameterFacts* parameter) {
        return matches(pattern, parameter->name);
      });
      if (found && objective.has_own_groups && !is_own) {
        throw ConfigError(
            fmt::format("[plan] objectives.{}.optimizer.groups: the pattern '{}' matches "
                        "parameters of other objectives alone; drop it",
                        objective.name, pattern));
      }
      if (found && !trained) {
        throw ConfigError("[optimizer] groups: the pattern '" + pattern +
                          "' matches frozen parameters alone; drop it, or freeze less");
      }
    }
  }
}

std::string rounded(double value) { return to_text(std::round(value * 100) / 100); }

// Reports the factors of the first objective, and of others that have their own.
void plan_layer_decay(const Request& request, size_t index, Plan& plan) {
  const ObjectivePlan& objective = plan.objectives[index];
  const auto& o = objective.optimizer;
  if (o.layer_decay == 1 || request.profile.parameters.empty()) return;
  std::vector<std::string> names;
  if (objective.has_own_layers) {
    for (const auto* parameter : parameters_of(request, index)) names.push_back(parameter->name);
  } else {
    for (const auto& parameter : request.profile.parameters) names.push_back(parameter.name);
  }
  const Layers layers = layers_of(names, o.layers);
  if (index > 0 && !objective.has_own_layers) return;
  const auto scales = layer_scales(layers, o.layer_decay);
  std::string reason = fmt::format("{} layers", to_text(layers.count));
  for (int64_t layer = 0; layer < layers.count; ++layer) {
    if (layer == 2 && layers.count > 4) reason += ", …";
    if (layer >= 2 && layer < layers.count - 2) continue;
    for (size_t i = 0; i < names.size(); ++i) {
      if (layers.of[i] != layer) continue;
      reason +=
          fmt::format("{}{} {} …", layer == 0 ? ": × " : ", × ", to_text(scales[i]), names[i]);
      break;
    }
  }
  const std::string whose = index == 0 ? "" : "objectives." + objective.name + ".";
  plan.lines.push_back({whose + "layer_decay", to_text(o.layer_decay),
                        request.source(request.key_of(objective, "optimizer.layer_decay")),
                        reason});
}

// The state of an objective's parameters, in bytes and elements.
struct StateSize {
  int64_t bytes = 0, trained = 0;  // from the start on
  int64_t unfrozen_bytes = 0;      // more once all is unfrozen
};

StateSize state_size(const Request& request, const Plan& plan, size_t objective) {
  const OptimizerOptions& options = plan.objectives[objective].optimizer;
  const bool has_narrow = weight_size(plan.precision) == 2;
  StateSize size;
  for (const ParameterFacts* parameter : parameters_of(request, objective)) {
    const bool stays_wide = parameter->batch_norm && plan.precision.keep_batchnorm_fp32;
    const int64_t element = has_narrow && stays_wide ? 4 : gradient_size(plan.precision);
    const bool has_copy = plan.precision.master_weights && has_narrow && !stays_wide;
    const int64_t count = elements(parameter->shape, parameter->shape.size());
    const int64_t bytes = state_bytes(options, *parameter, element) + (has_copy ? 4 * count : 0);
    if (parameter->trained) {
      size.bytes += bytes;
      size.trained += count;
    } else if (is_unfrozen(plan, parameter->name, plan.length.total_steps)) {
      size.unfrozen_bytes += bytes;
    }
  }
  return size;
}

std::string state_text(const Request& request, const Plan& plan, size_t objective) {
  const auto [bytes, trained, unfrozen] = state_size(request, plan, objective);
  std::string text = "state: " + described(plan.objectives[objective].optimizer);
  if (plan.precision.master_weights) text += ", master_weight";
  if (trained > 0) {
    text += "; " + rounded(static_cast<double>(bytes) / static_cast<double>(trained)) +
            " bytes per trained parameter, " + bytes_text(static_cast<double>(bytes));
  }
  if (unfrozen > 0) {
    text += ", " + bytes_text(static_cast<double>(bytes + unfrozen)) + " once all is unfrozen";
  }
  return text;
}

// Writes the only line of an objective after the first.
void tell_objective(const Request& request, size_t index, Plan& plan) {
  const ObjectivePlan& objective = plan.objectives[index];
  const std::string key = "objectives." + objective.name;
  const auto asked = request.config.asked.lower_bound(key + ".");
  const bool is_asked = asked != request.config.asked.end() && asked->starts_with(key + ".");
  const std::string turns = objective.every == 1
                                ? "every batch"
                                : fmt::format("every {} batches", to_text(objective.every));
  plan.lines.push_back(
      {key, objective.optimizer.kind, is_asked ? Source::asked : Source::by_default,
       fmt::format("learning rate {}, {}, {} updates; {}",
                   to_text(objective.optimizer.learning_rate), turns,
                   to_text(objective.total_steps), state_text(request, plan, index))});
}

}  // namespace

int64_t optimizer_bytes(const Request& request, const Plan& plan) {
  int64_t bytes = 0;
  for (size_t i = 0; i < plan.objectives.size(); ++i) bytes += state_size(request, plan, i).bytes;
  return bytes;
}

void plan_optimizer(const Request& request, Plan& plan) {
  for (size_t i = 0; i < plan.objectives.size(); ++i) check_groups(request, plan, i);
  const ObjectivePlan& first = plan.objectives.front();
  plan.lines.push_back({"optimizer", first.optimizer.kind,
                        request.source(request.key_of(first, "optimizer.kind")),
                        state_text(request, plan, 0)});
  for (size_t i = 0; i < plan.objectives.size(); ++i) plan_layer_decay(request, i, plan);
  for (size_t i = 1; i < plan.objectives.size(); ++i) tell_objective(request, i, plan);
}

void plan_schedule(const Request& request, Plan& plan) {
  const auto measured = measured_values(plan.evaluate);
  for (ObjectivePlan& objective : plan.objectives) {
    auto& schedule = objective.schedule;
    const bool is_measured =
        std::find(measured.begin(), measured.end(), schedule.metric) != measured.end();
    if (reads_evaluations(schedule) && !is_measured) {
      throw ConfigError(fmt::format(
          "[plan] {} is \"{}\", which does not fit this task; what is measured is {}",
          request.key_of(objective, "schedule.metric"), schedule.metric, join(measured)));
    }
    schedule.mode = lower_is_better(schedule.metric, schedule.mode).value_or(true) ? "min" : "max";
  }
}

}  // namespace tanren
