#include "tanren/post_training/quantize_metric.h"

#include "tanren/base/error.h"
#include "tanren/base/metric_names.h"
#include "tanren/base/names.h"
#include "tanren/config/metric_mode.h"

#include <fmt/format.h>
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tanren {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Whether the metric is a share of 1, or a coefficient whose best is 1.
bool is_share(const std::string& name) {
  const auto metric = metric_named(name);
  if (!metric) return false;
  switch (metric->kind) {
    case MetricKind::top_k:
    case MetricKind::precision:
    case MetricKind::recall:
    case MetricKind::f1:
    case MetricKind::auroc:
    case MetricKind::r2:
    case MetricKind::ssim: return true;
    default: return false;
  }
}

// 1 if fewer than k scores are higher (ties: the lower class first) and none is NaN, else 0.
double is_among_best(const double* scores, int64_t classes, int64_t target, int64_t k) {
  int64_t higher = 0;
  for (int64_t c = 0; c < classes; ++c) {
    if (std::isnan(scores[c])) return 0;
    if (scores[c] > scores[target] || (scores[c] == scores[target] && c < target)) ++higher;
  }
  return higher < k ? 1 : 0;
}

at::Tensor on_host(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.detach().to(at::kCPU, dtype).contiguous();
}

}  // namespace

QuantizeMetric deciding_metric(const CheckpointOptions& ranked, const EvaluateOptions& measured) {
  const auto values = measured_values(measured);
  const bool is_measured = std::find(values.begin(), values.end(), ranked.metric) != values.end();
  if (ranked.best > 0 && is_measured) {
    const auto lower = lower_is_better(ranked.metric, ranked.mode);
    if (!lower) {
      throw ConfigError("[quantize] whether a higher " + ranked.metric +
                        " is better is not known; set checkpoint.mode");
    }
    return {ranked.metric, *lower, is_share(ranked.metric)};
  }
  for (const std::string& name : values) {
    if (lower_is_better(name).value_or(true)) continue;
    return {name, false, is_share(name)};
  }
  return {};
}

QuantizeMetric deciding_metric(const Task& task) {
  if (matches_any(task.metrics, "accuracy")) return {"accuracy", false, true};
  return {};
}

double value_in(const EvaluationReport& report, const QuantizeMetric& metric) {
  for (const auto& [name, value] : report.values) {
    if (name == metric.name) return value;
  }
  return kNan;
}

double worsening(const QuantizeMetric& metric, double fp32, double value) {
  const double worse = metric.lower_is_better ? value - fp32 : fp32 - value;
  if (metric.in_points) return worse * 100;
  if (worse == 0) return 0;
  return worse / std::abs(fp32) * 100;
}

bool is_within(const QuantizeMetric& metric, double tolerance, double fp32, double value) {
  return worsening(metric, fp32, value) <= tolerance + 1e-9;  // 1e-9: rounding
}

SampleValues::SampleValues(const QuantizeMetric& metric) {
  const auto named = metric_named(metric.name);
  if (!named) return;
  if (named->kind == MetricKind::top_k) kind_ = Kind::top_k;
  if (named->kind == MetricKind::mse) kind_ = Kind::squared;
  if (named->kind == MetricKind::mae) kind_ = Kind::absolute;
  k_ = named->k;
}

void SampleValues::add(const Batch& samples, const Prediction& prediction) {
  const int64_t n = samples.size();
  const at::Tensor &outputs = prediction.outputs, &targets = prediction.targets;
  const auto give_up = [&] {
    kind_ = Kind::none;
    values_.clear();
  };
  if (outputs.defined() && n > 0 && outputs.dim() > 0 && outputs.size(0) == n) {
    num_nan_ += outputs.reshape({n, -1}).isnan().any(1).sum().item<int64_t>();
  }
  if (kind_ == Kind::none) return;
  if (!outputs.defined() || !targets.defined() || targets.dim() < 1 || outputs.dim() < 1 ||
      targets.size(0) != n || outputs.size(0) != n) {
    return give_up();
  }
  const at::Tensor given = on_host(outputs, at::kDouble);
  const double* const scores = given.const_data_ptr<double>();
  if (kind_ != Kind::top_k || targets.is_floating_point()) {
    if (targets.numel() != outputs.numel() || n == 0) return give_up();
    if (kind_ == Kind::top_k && targets.numel() != n) return give_up();
    const at::Tensor wanted = on_host(targets, at::kDouble);
    const double* const values = wanted.const_data_ptr<double>();
    const int64_t width = targets.numel() / n;
    for (int64_t i = 0; i < n; ++i) {
      if (kind_ == Kind::top_k) {  // one output, whose sign decides between two classes
        const bool is_right = !std::isnan(scores[i]) && (scores[i] > 0) == (values[i] > 0.5);
        values_.emplace_back(is_right ? 1 : 0);
        continue;
      }
      double sum = 0;
      for (int64_t j = i * width; j < (i + 1) * width; ++j) {
        const double apart = scores[j] - values[j];
        sum += kind_ == Kind::squared ? apart * apart : std::abs(apart);
      }
      values_.emplace_back(sum / static_cast<double>(width));
    }
    return;
  }
  if (outputs.dim() != 2 || targets.dim() != 1) return give_up();
  const at::Tensor wanted = on_host(targets, at::kLong);
  const int64_t* const classes = wanted.const_data_ptr<int64_t>();
  const int64_t width = outputs.size(1);
  for (int64_t i = 0; i < n; ++i) {
    const bool has_target = classes[i] >= 0 && classes[i] < width;
    values_.emplace_back();
    if (has_target) values_.back() = is_among_best(scores + i * width, width, classes[i], k_);
  }
}

std::optional<Difference> paired_difference(const ValueBySample& values,
                                            const ValueBySample& fp32) {
  constexpr double kQuantile = 1.959963984540054;  // of the normal distribution, 97.5 %
  if (values.size() != fp32.size()) return std::nullopt;
  std::vector<double> apart;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] && fp32[i]) apart.push_back(*values[i] - *fp32[i]);
  }
  const auto n = static_cast<double>(apart.size());
  if (apart.size() < 2) return std::nullopt;
  Difference difference;
  for (const double one : apart) difference.mean += one / n;
  double squares = 0;
  for (const double one : apart) squares += (one - difference.mean) * (one - difference.mean);
  const double half = kQuantile * std::sqrt(squares / (n - 1) / n);
  difference.lower = difference.mean - half;
  difference.upper = difference.mean + half;
  return difference;
}

}  // namespace tanren
