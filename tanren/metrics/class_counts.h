// ClassCounts: hits of top-k, and per class how often it is the target, is predicted, and both; the
// confusion matrix if asked for. Integers on the device, so that no split of the data changes them.
// A row with a NaN score predicts nothing: its target is missed. Used by evaluation_metrics.
#pragma once

#include "tanren/base/report.h"
#include "tanren/comm/communicator.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tanren {

struct ClassCountsOptions {
  std::vector<int64_t> ks;  // of top-k; 1 is accuracy
  bool per_class = false;
  bool confusion_matrix = false;
};

class ClassCounts {
 public:
  ClassCounts(ClassCountsOptions options, int64_t classes, at::Device device);

  // scores [m, classes], labels [m]; -100 is ignored. Ties: the lower class first.
  void add(const at::Tensor& scores, const at::Tensor& labels);

  // Replaces the counts by their sums over all ranks.
  void join_over(Communicator& ranks);

  // Returns everything as doubles in one row, so that one device read is enough.
  at::Tensor values() const;
  // The contents of values(), as result() decodes them: targets seen, hits by k, and, if they were
  // counted, the classes.
  struct Result {
    double targets = 0;
    std::vector<double> hits;
    std::vector<ClassReport> classes;
    std::vector<double> both;  // predicted and target, by class
    std::vector<int64_t> confusion_matrix;
  };
  Result result(const double* values) const;

 private:
  ClassCountsOptions options_;
  int64_t classes_;
  at::Tensor hits_;       // [1 + ks]: targets, hits
  at::Tensor per_class_;  // [3, classes]: targets, predictions, both
  at::Tensor confusion_;  // [classes × classes]
};

}  // namespace tanren
