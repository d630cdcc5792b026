// Seeds of a loss: what a backward begins with at each term, the gradient of the scaled loss in the
// term's sum. Two read them: the step's own backward, and a forward that computes gradients along
// with the loss, before there is a backward.
//
// LossSeedsScope holds, for the current thread, the seeds of a forward. The step opens one around
// each forward and each backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

// Invariant: the same term, count, dtype and device have one tensor as long as the seeds live, so
// that a forward that used a seed can tell whether the backward begins with it. Not thread-safe.
class LossSeeds {
 public:
  // What divides and scales the term; no value: no backward begins there.
  using Factor =
      std::function<std::optional<double>(const std::string& term, const std::string& count_name)>;
  explicit LossSeeds(Factor factor) : factor_(std::move(factor)) {}

  // 0-dim, without a graph; undefined if no backward begins at the term. Throws what the factor
  // throws.
  at::Tensor of(const std::string& term, const std::string& count_name, at::ScalarType dtype,
                at::Device device);

 private:
  struct Seed {
    std::string term, count_name;
    at::Tensor tensor;
  };
  Factor factor_;
  std::vector<Seed> made_;
};

class LossSeedsScope {
 public:
  // `seeds` may be null, which hides those of an outer scope.
  explicit LossSeedsScope(LossSeeds* seeds);
  ~LossSeedsScope();
  LossSeedsScope(const LossSeedsScope&) = delete;
  LossSeedsScope& operator=(const LossSeedsScope&) = delete;

  // The seeds of the innermost scope of this thread. Null outside a training step, and where
  // several objectives share a forward, each with seeds of its own.
  static LossSeeds* current();

 private:
  LossSeeds* outer_;
};

}  // namespace tanren
