// ForwardWork: counts the multiply-adds of the forwards in a dry run, by block, and measures the
// largest operators. Used by forecast/predict.
#pragma once

#include "tanren/base/operator_sizes.h"
#include "tanren/dry/dry_observer.h"

#include <cstdint>
#include <map>

namespace tanren {

class ForwardWork final : public DryObserver {
 public:
  void around(const DryCall& call, c10::function_ref<void()> run) override;
  void forward_noted(int64_t count) override;

  // By the number of their block (block_trail.h; 0: none).
  std::map<uint16_t, int64_t> multiply_adds;
  OperatorSizes largest;
};

}  // namespace tanren
