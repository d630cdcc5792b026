#include "tanren/base/error.h"
#include "tanren/base/metric_names.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/metric_mode.h"
#include "tanren/plan/passes.h"

#include <algorithm>

namespace tanren {

namespace {

// A metric that steers the run. The default list of metrics may have been dropped just before.
MetricPlan metric_of(const Plan& plan, const std::string& key, const std::string& metric,
                     const std::string& mode) {
  const auto measured = measured_values(plan.evaluate);
  if (!key.empty() && std::find(measured.begin(), measured.end(), metric) == measured.end()) {
    throw ConfigError(
        fmt::format("[plan] {} is \"{}\", which does not fit this task; what is measured is {}",
                    key, metric, join(measured)));
  }
  return {metric, lower_is_better(metric, mode).value_or(true)};
}

std::string direction(const MetricPlan& by) {
  return by.metric + (by.lower_is_better ? ", lower is better" : ", higher is better");
}

// Why the metric cannot be measured on this task; empty if it can.
std::string misfit(const std::string& metric, const ModelProfile& profile) {
  if (!matches_any(profile.metrics, metric)) {
    return "does not fit this task; " + (profile.metrics.empty()
                                             ? "its Task names no metrics that do"
                                             : "what fits is " + join(profile.metrics));
  }
  if (profile.classes == 0) return "";
  const std::string reason = misfit_of_classes(metric, profile.classes);
  return reason.empty() ? "" : reason + "; drop it or lower it";
}

void plan_metrics(const Request& request, Plan& plan) {
  auto& metrics = plan.evaluate.metrics;
  // A run's own config.toml has the defaults, too.
  const bool asked = metrics != EvaluateOptions().metrics;
  std::string dropped;
  for (const auto& metric : metrics) {
    const std::string reason = misfit(metric, request.profile);
    if (reason.empty()) continue;
    if (asked) throw ConfigError("[plan] evaluate.metrics has \"" + metric + "\", which " + reason);
    dropped = metric;
  }
  if (dropped.empty()) return;
  metrics.clear();
  plan.lines.push_back({"evaluate.metrics", "[]", Source::planned,
                        dropped + ", the default, " + misfit(dropped, request.profile)});
}

// Only tasks that picture metrics fit show pictures.
void check_pictures(const Request& request) {
  const int64_t every = request.config.metrics.images_every;
  if (every == 0 || matches_any(request.profile.metrics, picture_metrics().front())) return;
  throw ConfigError(
      fmt::format("[plan] metrics.images_every is {}, and the outputs of this task are no "
                  "pictures; set it to 0, or take data.train.kind \"pairs\"",
                  to_text(every)));
}

}  // namespace

void plan_evaluation(const Request& request, Plan& plan) {
  plan_metrics(request, plan);
  check_pictures(request);
  const auto& config = request.config;
  const bool asked = config.evaluate.batch > 0;
  plan.evaluate.batch = asked ? config.evaluate.batch : plan.batch.microbatch;
  plan.best = metric_of(plan, config.checkpoint.best > 0 ? "checkpoint.metric" : "",
                        config.checkpoint.metric, config.checkpoint.mode);
  plan.early_stop_by = metric_of(plan, config.early_stop.patience > 0 ? "early_stop.metric" : "",
                                 config.early_stop.metric, config.early_stop.mode);
  if (!has_evaluation(config.data)) return;
  const auto every = config.evaluate.every;
  plan.lines.push_back(
      {"evaluate",
       every > 0 ? fmt::format("every {} steps", to_text(every)) : std::string("at the end"),
       request.source("evaluate.every"),
       fmt::format("{} samples, each once{}", to_text(request.profile.eval_samples),
                   every > 0 ? ", and at the end" : "")});
  plan.lines.push_back(
      {"evaluate.batch", to_text(plan.evaluate.batch), asked ? Source::asked : Source::planned,
       std::string(asked ? "" : "as training's microbatch; ") + "it cannot change a result"});
  if (config.checkpoint.best > 0) {
    plan.lines.push_back(
        {"checkpoint.best", to_text(config.checkpoint.best), Source::asked,
         "by " + direction(plan.best) + "; an evaluation among the best writes a checkpoint"});
  }
  const auto& stop = config.early_stop;
  if (stop.patience > 0) {
    plan.lines.push_back(
        {"early_stop", to_text(stop.patience), Source::asked,
         fmt::format(
             "evaluations in a row without better {} by more than {}{}",
             direction(plan.early_stop_by), to_text(stop.min_delta),
             stop.start > 0 ? fmt::format(", counted from step {}", to_text(stop.start)) : "")});
  }
}

}  // namespace tanren
