// GeneratorScope: restores the random generators when it ends. Forecasts make models in between,
// which draws from them and seeds them. Internal to forecast/.
#pragma once

#include "tanren/base/generators.h"

namespace tanren {

class GeneratorScope {
 public:
  explicit GeneratorScope(at::Device device) : device_(device), states_(generator_states(device)) {}
  ~GeneratorScope() { set_generator_states(device_, states_); }
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  at::Device device_;
  TensorMap states_;
};

}  // namespace tanren
