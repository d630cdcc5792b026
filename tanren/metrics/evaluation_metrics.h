// EvaluationMetrics: streaming metrics of an evaluation, by the names of base/metric_names.h.
// Counts and sums stay on the device and are read once at the end; no activations are kept (auroc
// keeps at most 64 MiB of scores), so memory does not grow with the dataset, and the batch size
// cannot change a result. Called by evaluate, between batches; one thread.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/metric_names.h"
#include "tanren/base/report.h"
#include "tanren/comm/communicator.h"
#include "tanren/metrics/auroc.h"
#include "tanren/metrics/class_counts.h"
#include "tanren/metrics/picture_quality.h"
#include "tanren/metrics/value_errors.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

class EvaluationMetrics {
 public:
  // ConfigError for a name that is no metric.
  EvaluationMetrics(std::vector<std::string> names, at::Device device);

  // One batch. Classes: outputs [n, classes, …] scores, targets [n, …] integer labels, -100
  // ignored. Binary: floating targets (> 0.5: class 1) and one output each, whose sign decides.
  // Values: floating targets and as many outputs. Pictures: both [n, c, h, w]. ConfigError if a
  // metric does not fit, RunError for shapes.
  void add(const at::Tensor& outputs, const at::Tensor& targets);

  // Joins what all ranks have added; each sample counts once. A rank may have added nothing.
  void join_over(Communicator& ranks);

  // Returns `values` in the order of the names, and the results of each class. A target counts for
  // top<k> if fewer than k classes score higher (ties: the lower class first) and no score of its
  // row is NaN. macro is the mean over classes that occur as target or prediction; a share 0/0 is
  // 0. Perplexity is exp of the term "cross_entropy" of `terms` (each divided by its count);
  // ConfigError if that term is missing. Per byte or word it is exp of the same sum over that count
  // of `of_data` ("tokens", "bytes", "words"); ConfigError if the data do not count it. NaN if
  // nothing was added. One device read.
  EvaluationReport result(const NamedValues& terms = {}, const Counts& of_data = {}) const;

 private:
  struct Named {
    std::string name;
    MetricName metric;
  };

  bool wants(MetricKind kind) const;
  void start_classes(int64_t classes, at::Device device);
  double value_of(const MetricName& metric, const ClassCounts::Result& counts,
                  const NamedValues& terms, const Counts& of_text) const;

  std::vector<Named> metrics_;
  at::Device device_;
  bool of_classes_ = false;
  bool of_values_ = false;
  std::vector<int64_t> ks_;
  int64_t classes_ = 0;  // known once a batch was seen
  std::optional<ClassCounts> counts_;
  std::optional<Auroc> auroc_;
  ValueErrors errors_;
  std::optional<PictureQuality> quality_;  // if a metric is of pictures
};

}  // namespace tanren
