// The metric that decides whether 8-bit layers may stay, what they may cost, and its difference to
// fp32 sample by sample. Plain values and pure functions, but for SampleValues, which one thread
// fills during an evaluation. Called by layer_choice.h and quantize_file.h.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/report.h"
#include "tanren/base/task.h"
#include "tanren/config/run_config.h"
#include "tanren/post_training/quantize_report.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct QuantizeMetric {
  std::string name = "loss";
  bool lower_is_better = true;
  bool in_points = false;  // tolerance in points (0.01 of a share); else in per cent of fp32's

  std::string tolerance_unit() const { return in_points ? "points" : "per cent"; }
};

// Chooses a value that the evaluation measures: the metric that ranks checkpoints, if they are
// ranked; else the first metric for which higher is better, such as accuracy; else the loss.
// ConfigError for a metric whose direction is unknown.
QuantizeMetric deciding_metric(const CheckpointOptions& ranked, const EvaluateOptions& measured);

// The same for a task without a config: accuracy if it fits, else the loss.
QuantizeMetric deciding_metric(const Task& task);

// The metric's value; NaN if the evaluation did not measure it.
double value_in(const EvaluationReport& report, const QuantizeMetric& metric);

// How much worse `value` is than fp32's, in the unit of the tolerance; below 0: it is better.
double worsening(const QuantizeMetric& metric, double fp32, double value);
// False if either value is NaN.
bool is_within(const QuantizeMetric& metric, double tolerance, double fp32, double value);

// The metric of each sample; no value for a sample without a target.
using ValueBySample = std::vector<std::optional<double>>;

// The metric of each sample alone, in the order of the evaluation, for metrics that are a mean over
// samples: accuracy and top<k> (1 or 0) of one class a sample, mse and mae.
class SampleValues {
 public:
  explicit SampleValues(const QuantizeMetric& metric);
  void add(const Batch& samples, const Prediction& prediction);
  // Empty if some prediction does not give the metric of each sample. Outputs with a NaN count as a
  // wrong class; mse and mae are then NaN.
  const ValueBySample& values() const { return values_; }
  // The samples whose outputs have a NaN, of predictions with a row for each sample.
  int64_t num_nan() const { return num_nan_; }

 private:
  enum class Kind { none, top_k, squared, absolute };
  Kind kind_ = Kind::none;
  int64_t k_ = 1;
  ValueBySample values_;
  int64_t num_nan_ = 0;
};

// The mean of the differences value - fp32 over the samples that both have, and its 95 % interval
// by the normal distribution: mean ± 1.96 s / √n, with s² over n - 1. A value that is not
// finite makes all three not finite: no sample is left out for it. No value if fewer than 2 samples
// have both, or if the two lists have different lengths.
std::optional<Difference> paired_difference(const ValueBySample& values, const ValueBySample& fp32);

}  // namespace tanren
