// ForwardWork: counts the multiply-adds of the forwards in a dry run, by block, those that their
// backwards will need, and measures the largest operators. Used by forecast/.
#pragma once

#include "tanren/base/operator_sizes.h"
#include "tanren/dry/dry_observer.h"

#include <cstdint>
#include <map>

namespace tanren {

class ForwardWork final : public DryObserver {
 public:
  void around(const DryCall& call, c10::function_ref<void()> run) override;
  void forward_noted(int64_t forward, int64_t gradients) override;

  // By the number of their block (block_trail.h; 0: none).
  std::map<uint16_t, int64_t> multiply_adds;
  // Of the backwards of these forwards: a product as large as the forward's for each of its two
  // factors that needs a gradient. A noted forward says how many it has.
  int64_t backward_multiply_adds = 0;
  OperatorSizes largest;

 private:
  void count(int64_t forward, int64_t factors);

  int64_t num_counted_ = 0;
};

}  // namespace tanren
