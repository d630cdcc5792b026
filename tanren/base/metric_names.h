// The names of evaluation metrics: parsed here for the checks of a config, for planning (which
// metrics fit a task) and for the metrics room, so that config key, log key and report agree.
// Torch-free.
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
  byte_perplexity,
  bits_per_byte,
  word_perplexity,
  psnr,
  ssim,
};

enum class ClassAverage { none, binary, macro, micro };  // binary: class 1 only

struct MetricName {
  MetricKind kind = MetricKind::top_k;
  ClassAverage averaging = ClassAverage::none;
  int64_t k = 1;  // of top<k>
};

// The metric that `name` means; empty if there is none.
std::optional<MetricName> metric_named(std::string_view name);
// What to use instead of a name that is no metric, as the end of a sentence: "known are …".
std::string metric_advice(std::string_view name);

// Glob patterns of the metrics that fit a task, for Task::metrics. Class metrics fit predictions
// that are class scores, and value metrics fit values. Picture metrics fit pictures: outputs and
// targets [n, c, h, w] in [-1, 1] with c 1 or 3. Only a task with picture metrics shows pictures
// (metrics.images_every). "perplexity" is in no list: it fits if the loss is an unsmoothed cross
// entropy.
std::vector<std::string> class_metrics();
std::vector<std::string> value_metrics();
std::vector<std::string> picture_metrics();
// For a model that predicts each next token of a text, without label smoothing.
std::vector<std::string> text_metrics();

// Whether the metric is of the bytes or words of a text.
bool is_of_text(MetricKind kind);

// The most classes for which counts are kept per pair (confusion_matrix) or ranks per class
// (auroc).
inline constexpr int64_t kMaxTableClasses = 1000;

// Why the metric cannot be computed for this number of classes, as the end of a sentence; empty if
// it can.
std::string misfit_of_classes(std::string_view name, int64_t classes);

// Whether a lower value is better, for "loss" and every metric but the confusion matrix, which is
// not a number. Empty for that and for unknown names.
std::optional<bool> lower_is_better(std::string_view name);

}  // namespace tanren
