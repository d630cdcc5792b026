// The random generators that a run's forward may draw from: torch's default ones of the CPU and of
// the run's device. Their state belongs to the run (user code such as at::dropout draws from them).
#pragma once

#include "tanren/base/tensor_map.h"

#include <c10/core/Device.h>

namespace tanren {

// "cpu" and, for an accelerator, its type's name → state (uint8 tensor on the CPU).
TensorMap generator_states(at::Device device);
// Restores states. Generators that `states` does not name keep their state.
void set_generator_states(at::Device device, const TensorMap& states);

}  // namespace tanren
