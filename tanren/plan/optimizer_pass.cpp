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
void check_groups(const Request& request, const Plan& plan) {
  for (const auto& group : plan.optimizer.groups) {
    for (const auto& pattern : group.parameters) {
      bool found = false, trained = false;
      for (const auto& parameter : request.profile.parameters) {
        if (!matches(pattern, parameter.name)) continue;
        found = true;
        trained = trained || parameter.trained || is_unfrozen(plan, parameter.name);
      }
      if (found && !trained) {
        throw ConfigError("[optimizer] groups: the pattern '" + pattern +
                          "' matches frozen parameters alone; drop it, or freeze less");
      }
    }
  }
}

std::string rounded(double value) { return to_text(std::round(value * 100) / 100); }

void plan_layer_decay(const Request& request, Plan& plan) {
  const auto& o = plan.optimizer;
  if (o.layer_decay == 1 || request.profile.parameters.empty()) return;
  std::vector<std::string> names;
  for (const auto& parameter : request.profile.parameters) names.push_back(parameter.name);
  const Layers layers = layers_of(names, o.layers);
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
  plan.lines.push_back(
      {"layer_decay", to_text(o.layer_decay), request.source("optimizer.layer_decay"), reason});
}

int64_t state_bytes(const Plan& plan, const ParameterFacts& parameter) {
  return state_bytes(plan.optimizer, parameter, plan.precision.mode == Mode::fp64 ? 8 : 4);
}

}  // namespace

int64_t optimizer_bytes(const Request& request, const Plan& plan) {
  int64_t bytes = 0;
  for (const auto& parameter : request.profile.parameters) {
    if (parameter.trained) bytes += state_bytes(plan, parameter);
  }
  return bytes;
}

void plan_optimizer(const Request& request, Plan& plan) {
  plan.optimizer = with_defaults(request.config.optimizer);
  plan.schedule = request.config.schedule;
  check_groups(request, plan);
  const int64_t bytes = optimizer_bytes(request, plan);
  int64_t trained = 0, unfrozen = 0;
  for (const auto& parameter : request.profile.parameters) {
    if (parameter.trained) {
      trained += elements(parameter.shape, parameter.shape.size());
    } else if (is_unfrozen(plan, parameter.name, plan.length.total_steps)) {
      unfrozen += state_bytes(plan, parameter);
    }
  }
  std::string reason = "state: " + described(plan.optimizer);
  if (trained > 0) {
    reason += "; " + rounded(static_cast<double>(bytes) / static_cast<double>(trained)) +
              " bytes per trained parameter, " + bytes_text(static_cast<double>(bytes));
  }
  if (unfrozen > 0) {
    reason += ", " + bytes_text(static_cast<double>(bytes + unfrozen)) + " once all is unfrozen";
  }
  plan.lines.push_back(
      {"optimizer", plan.optimizer.kind, request.source("optimizer.kind"), reason});
  plan_layer_decay(request, plan);
}

void plan_schedule(const Request&, Plan& plan) {
  auto& schedule = plan.schedule;
  const auto measured = measured_values(plan.evaluate);
  const bool is_measured =
      std::find(measured.begin(), measured.end(), schedule.metric) != measured.end();
  if (reads_evaluations(schedule) && !is_measured) {
    throw ConfigError("[plan] schedule.metric is \"" + schedule.metric +
                      "\", which does not fit this task; what is measured is " + join(measured));
  }
  schedule.mode = lower_is_better(schedule.metric, schedule.mode).value_or(true) ? "min" : "max";
}

}  // namespace tanren
