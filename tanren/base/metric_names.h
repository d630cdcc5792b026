// The names of evaluation metrics: one reading of them for the checks of a config, for planning (what
// fits a task) and for the metrics room, so that config key, log key and report agree. Torch-free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

enum class MetricKind {
  top_k,  // accuracy is top1
  precision,
  recall,
  f1,
  auroc,
  confusion_matrix,
  mse,
  mae,
  r2,
  perplexity,
};

enum class ClassAverage { none, binary, macro, micro };  // binary: of class 1 alone

struct MetricName {
  MetricKind kind = MetricKind::top_k;
  ClassAverage averaging = ClassAverage::none;
  int64_t k = 1;  // of top<k>
};

// What `name` means; empty if it is no metric.
std::optional<MetricName> metric_named(std::string_view name);
// What is wrong with a name that is none, as the end of a sentence: "known are …", "say f1_macro, …".
std::string metric_advice(std::string_view name);

// What fits a task, as glob patterns of names, for Task::metrics: predictions that are class scores,
// and predictions that are values. "perplexity" fits where the loss is an unsmoothed cross entropy.
std::vector<std::string> class_metrics();
std::vector<std::string> value_metrics();

// The most classes for which counts are kept per pair (confusion_matrix) or ranks per class (auroc).
inline constexpr int64_t kMaxTableClasses = 1000;

// Why the metric cannot be computed over so many classes, as the end of a sentence; empty if it can.
std::string misfit_of_classes(std::string_view name, int64_t classes);

// Whether a low value is a good one: of "loss" and of every metric but the confusion matrix, which
// is no number. Empty for unknown names.
std::optional<bool> lower_is_better(std::string_view name);

}  // namespace tanren
