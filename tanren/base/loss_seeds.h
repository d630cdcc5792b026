// LossSeeds: the gradients that a backward begins with. The seed of a term is the gradient of the
// scaled loss with respect to the term's sum. Two places read the seeds: the step's own backward,
// and a forward that computes gradients together with the loss, before any backward.
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

// Invariant: while the seeds live, each combination of term, count, dtype and device has one
// tensor. A forward that used a seed can therefore check whether the backward begins with the same
// one. Not thread-safe.
class LossSeeds {
 public:
  // Returns the seed's value, which scales the term and divides it by its count. No value: no
  // backward begins at this term.
  using Factor =
      std::function<std::optional<double>(const std::string& term, const std::string& count_name)>;
  explicit LossSeeds(Factor factor) : factor_(std::move(factor)) {}

  // The seed: 0-dim, without a graph; undefined if no backward begins at the term. Throws what the
  // factor throws.
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

  // The seeds of the innermost scope of this thread. Null outside a training step, and if several
  // objectives share a forward, because each has its own seeds.
  static LossSeeds* current();

 private:
  LossSeeds* outer_;
};

}  // namespace tanren
