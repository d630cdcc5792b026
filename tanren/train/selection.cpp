#include "tanren/train/selection.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <cmath>

namespace tanren {

namespace {

std::string described(const MetricPlan& by) {
  return by.metric + (by.lower_is_better ? ", lower is better" : ", higher is better");
}

// False for a NaN.
bool better(double value, double than, const MetricPlan& by, double margin = 0) {
  return by.lower_is_better ? value < than - margin : value > than + margin;
}

double measured(const EvaluationReport& report, const std::string& metric) {
  for (const auto& [name, value] : report.values) {
    if (name == metric) return value;
  }
  throw ConfigError("[evaluate] the evaluation measures no " + metric +
                    ", by which the run is judged; name another metric");
}

template <typename T>
T value_or(const State& state, const std::string& name, T otherwise) {
  return state.values.count(name) > 0 ? value_of<T>(state, name) : otherwise;
}

}  // namespace

void Selection::adopt(const Plan& plan) {
  if (best_by != described(plan.best)) best.clear();
  best_by = described(plan.best);
  if (static_cast<int64_t>(best.size()) > plan.checkpoint.best) best.resize(plan.checkpoint.best);
  if (record_by != described(plan.early_stop_by) || plan.early_stop.patience == 0) {
    record.reset();
    waited = 0;
  }
  record_by = described(plan.early_stop_by);
}

bool Selection::judge(const Plan& plan, EvaluationReport& report) {
  if (report.step == judged_step) return false;
  const auto& stop = plan.early_stop;
  const bool ranks = plan.checkpoint.best > 0;
  const bool may_stop = stop.patience > 0 && report.step >= stop.start;
  // A metric that was not measured throws here, before anything has changed.
  const double ranked = ranks ? measured(report, plan.best.metric) : 0;
  const double watched = may_stop ? measured(report, plan.early_stop_by.metric) : 0;
  judged_step = report.step;
  bool among_best = false;
  if (ranks) {
    auto place = best.begin();
    while (place != best.end() && !better(ranked, place->value, plan.best)) ++place;
    const bool full = static_cast<int64_t>(best.size()) >= plan.checkpoint.best;
    among_best = std::isfinite(ranked) && (!full || place != best.end());
    if (among_best) {
      best.insert(place, {report.step, ranked});
      if (full) best.pop_back();
    }
  }
  if (may_stop) {
    const bool improved = record
                              ? better(watched, record->value, plan.early_stop_by, stop.min_delta)
                              : std::isfinite(watched);
    if (improved) record = {report.step, watched};
    waited = improved ? 0 : waited + 1;
    report.ends_run = end_reason(plan);
  }
  return among_best;
}

std::string Selection::end_reason(const Plan& plan) const {
  const auto& stop = plan.early_stop;
  if (stop.patience == 0 || waited < stop.patience) return "";
  const std::string& metric = plan.early_stop_by.metric;
  const std::string times = fmt::format("{}{} (early_stop)", to_text(waited),
                                        waited == 1 ? " evaluation" : " evaluations");
  if (!record) return metric + " has not been a number in " + times;
  return fmt::format("{} has not improved on {} of step {} in {}", metric, to_text(record->value),
                     to_text(record->step), times);
}

State Selection::state() const {
  State state;
  state.values["best_by"] = best_by;
  state.values["record_by"] = record_by;
  state.values["waited"] = waited;
  state.values["judged_step"] = judged_step;
  for (size_t i = 0; i < best.size(); ++i) {
    const std::string name = fmt::format("best.{}", i);
    state.values[name + ".step"] = best[i].step;
    state.values[name + ".value"] = best[i].value;
  }
  if (record) {
    state.values["record.step"] = record->step;
    state.values["record.value"] = record->value;
  }
  return state;
}

void Selection::load(const State& state) {
  *this = {};
  best_by = value_or<std::string>(state, "best_by", "");
  record_by = value_or<std::string>(state, "record_by", "");
  waited = value_or<int64_t>(state, "waited", 0);
  judged_step = value_or<int64_t>(state, "judged_step", -1);
  for (size_t i = 0;; ++i) {
    const std::string name = fmt::format("best.{}", i);
    if (state.values.count(name + ".step") == 0) break;
    best.push_back(
        {value_of<int64_t>(state, name + ".step"), value_of<double>(state, name + ".value")});
  }
  if (state.values.count("record.step") > 0) {
    record = {value_of<int64_t>(state, "record.step"), value_of<double>(state, "record.value")};
  }
}

}  // namespace tanren
