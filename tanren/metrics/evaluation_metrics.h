// EvaluationMetrics: streaming metrics of an evaluation. Counts stay on the device and are read once
// at the end; no activations are kept, so memory does not grow with the dataset, and the batch size
// cannot change a result. Called by evaluate, between batches; one thread.
#pragma once

#include "tanren/base/report.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

class EvaluationMetrics {
 public:
  // `names`: "accuracy" (= top1) and "top<k>"; ConfigError for any other.
  EvaluationMetrics(std::vector<std::string> names, at::Device device);

  // One batch. Classes: outputs [n, C, …] scores, targets [n, …] integer labels in [0, C); a target
  // counts for top<k> if fewer than k classes score higher (ties: the lower class first, as argmax)
  // and no score of its row is NaN. Binary: outputs and floating targets of one shape, "accuracy"
  // only, on the sign of the output. ConfigError if a metric does not fit, RunError for shapes.
  void add(const at::Tensor& outputs, const at::Tensor& targets);

  // Each metric as a share of all targets, in the order of `names`; NaN if there was none. One
  // device read.
  NamedValues result() const;

 private:
  void add_classes(const at::Tensor& outputs, const at::Tensor& targets);
  void add_binary(const at::Tensor& outputs, const at::Tensor& targets);

  std::vector<std::string> names_;
  std::vector<int64_t> ks_;  // of top<k>; 1 for accuracy
  at::Tensor hits_;          // int64 [names], on the device
  int64_t targets_ = 0;
};

}  // namespace tanren
