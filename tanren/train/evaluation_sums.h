// EvaluationSums: what an evaluation has seen so far, as sums of terms and of counts. The terms'
// sums stay on the device until they are read; ranks join them before that. A value; used by
// evaluate.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/error.h"
#include "tanren/base/report.h"
#include "tanren/base/terms.h"
#include "tanren/parallel/ranks.h"

#include <string>
#include <vector>

namespace tanren {

// Every rank throws it, after the last exchange of the evaluation.
class NothingToEvaluate : public DataError {
 public:
  using DataError::DataError;
};

class EvaluationSums {
 public:
  void add(const Terms& terms);
  void add(const Counts& counts);
  // Replaces the sums by those over all ranks; a rank may have seen nothing. Reads the device once.
  void join_over(const Ranks& ranks);

  struct Means {
    NamedValues terms;     // each divided by its count; NaN if the count is 0 or missing
    double loss = 0;       // the sum of the terms that have a count
    std::string left_out;  // log text for the terms without a count; empty: there are none
  };
  // Has no terms if nothing was added. One read. NothingToEvaluate if every count is 0.
  Means means() const;
  // 0 if no batch counted it.
  double count(const std::string& name) const;
  const Counts& counts() const { return counts_; }

 private:
  std::vector<std::string> names_, count_names_;
  std::vector<at::Tensor> sums_;  // fp64, 0-dim
  Counts counts_;
};

}  // namespace tanren
