// EvaluationSums: what an evaluation has seen so far, as sums of terms and of counts. The terms'
// sums stay on the device until they are read; ranks join them before that. A value; used by
// evaluate.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/error.h"
#include "tanren/base/report.h"
#include "tanren/base/terms.h"
#include "tanren/parallel/ranks.h"

#include <map>
#include <string>
#include <vector>

namespace tanren {

struct ObjectiveSpec;
struct RunConfig;
struct RunState;
struct Task;

// The weights of the terms in an evaluation's loss: those of the task's objectives, so that it is
// the same loss as in training.
class TermWeights {
 public:
  TermWeights() = default;  // every term counts once
  // With the weights of the config's [objectives] in place of the task's.
  TermWeights(const Task& task, const RunConfig& config);
  explicit TermWeights(const RunState& run);

  // A factor for each of the terms: the first weight other than 0 that an objective gives the term,
  // else 0. An objective that lists no terms gives 1 to each term that the config does not weight.
  // If all factors would be 0, predict has different terms, and each counts once.
  std::vector<double> factors(const std::vector<std::string>& terms) const;
  // The terms that get 0 because no objective mentions them.
  std::vector<std::string> left_out(const std::vector<std::string>& terms) const;

 private:
  void add(const ObjectiveSpec& objective, const std::map<std::string, double>& configured);

  std::vector<std::map<std::string, double>> objectives_;
  std::vector<bool> takes_others_;  // of each objective: lists no terms
};

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
    double loss = 0;       // the weighted sum of the terms that have a count
    std::string left_out;  // log text for the terms without a count; empty: there are none
  };
  // Has no terms if nothing was added. One read. NothingToEvaluate if the count of every term that
  // has a weight is 0.
  Means means(const TermWeights& weights) const;
  // 0 if no batch counted it.
  double count(const std::string& name) const;
  const Counts& counts() const { return counts_; }

 private:
  std::vector<std::string> names_, count_names_;
  std::vector<at::Tensor> sums_;  // fp64, 0-dim
  Counts counts_;
};

}  // namespace tanren
