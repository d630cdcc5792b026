// Auroc: area under the ROC curve of each class against all others, by the rank of log softmax;
// ties count half. Exact up to kExactScores scores, which are kept. Beyond that, scores are counted
// in bins of bounded memory, and the result comes with a bound on its error. Used by
// evaluation_metrics.
#pragma once

#include "tanren/comm/communicator.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace tanren {

class Auroc {
 public:
  static constexpr int64_t kExactScores = int64_t{1} << 24;  // 64 MiB

  Auroc(int64_t classes, at::Device device, int64_t exact_scores = kExactScores);

  // scores [m, classes], labels [m]; -100 is ignored.
  void add(const at::Tensor& scores, const at::Tensor& labels);

  // Joins what all ranks have added: exact if their scores together are few enough.
  void join_over(Communicator& ranks);

  // Returns everything as doubles in one row, so that one device read is enough.
  at::Tensor values() const;
  // The contents of values(), as result() decodes them. With two classes, both have the same value.
  // NaN for a class without targets or without others, and for all classes after a NaN score.
  struct Result {
    std::vector<double> classes;
    double mean = 0;   // over the classes that have a value
    double error = 0;  // largest possible distance from the exact values; 0: exact
  };
  Result result(const double* values) const;

 private:
  void begin_bins();
  // Counts scores [m, columns] in bins.
  void count(const at::Tensor& scores, const at::Tensor& labels);
  at::Tensor exact_values() const;

  int64_t classes_;
  int64_t columns_;  // two classes need one
  int64_t exact_scores_;
  int64_t num_kept_ = 0;
  std::vector<at::Tensor> kept_scores_, kept_labels_;
  at::Tensor unsound_;              // rows with a NaN, on the device
  int64_t bits_ = 0;                // 2^bits bins a column
  std::optional<at::Tensor> bins_;  // [2, columns × bins]: others, own
};

}  // namespace tanren
