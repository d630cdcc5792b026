// ForwardWork: counts the multiply-adds of the forwards in a dry run by block, and those that their
// backwards will need. It also measures the largest operators. Used by forecast/.
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
  // Multiply-adds of the backwards of these forwards. A product's backward has one product as large
  // as the forward's for each of the two factors that needs a gradient. A noted forward gives its
  // own number.
  int64_t backward_multiply_adds = 0;
  OperatorSizes largest;

 private:
  void count(int64_t forward, int64_t factors);

  int64_t num_counted_ = 0;
};

}  // namespace tanren
