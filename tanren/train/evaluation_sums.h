// EvaluationSums: what an evaluation has seen so far, as sums of terms and of counts: on the device until
// they are read, joined over ranks before. A value; used by evaluate.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/error.h"
#include "tanren/base/report.h"
#include "tanren/base/terms.h"
#include "tanren/parallel/data_parallel.h"

#include <string>
#include <vector>

namespace tanren {

// Every rank throws it alike, after the last exchange of the evaluation.
class NothingToEvaluate : public DataError {
 public:
  using DataError::DataError;
};

class EvaluationSums {
 public:
  void add(const Terms& terms);
  void add(const Counts& counts);
  // Sums become those over all ranks; a rank may have seen nothing. Reads the device once.
  void join_over(const DataParallel& parallel);

  struct Means {
    NamedValues terms;     // each divided by its count; NaN where that is 0, or nobody counted it
    double loss = 0;       // the sum of the others
    std::string left_out;  // what there is to tell of the terms that are NaN so; empty: none is
  };
  // No terms where nothing was added. One read. NothingToEvaluate where every count is 0.
  Means means() const;
  // 0 where nobody counted it.
  double count(const std::string& name) const;

 private:
  std::vector<std::string> names_, count_names_;
  std::vector<at::Tensor> sums_;  // fp64, 0-dim
  Counts counts_;
};

}  // namespace tanren
