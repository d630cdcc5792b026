// Adam's two moments in one or two bytes per element. 8-bit: blocks of 256 elements
// (ops/eight_bit.h). bf16: stochastic rounding by a hash of update and element, so that small
// changes of a large average are not lost. One pass over memory, in memory order, on the CPU; other
// devices use foreach-like operations (packed_adamw).
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/optimizer/element_kernels.h"

#include <cstdint>

namespace tanren {

// One fp32 parameter with packed moments; element i of its memory is in block i / kPackedBlock.
struct PackedElements {
  int64_t count = 0;
  float* parameter = nullptr;
  const float* gradient = nullptr;
  uint8_t* first = nullptr;
  float* first_scale = nullptr;  // per block
  uint8_t* second = nullptr;
  float* second_scale = nullptr;
};
// Unpacks the moments, updates as moment_elements, and packs them again.
void packed_moment_elements(const PackedElements& elements, const MomentNumbers& numbers);

// The same for moments in bf16 (as their bits). `draw` differs from update to update.
struct HalfElements {
  int64_t count = 0;
  float* parameter = nullptr;
  const float* gradient = nullptr;
  uint16_t* first = nullptr;
  uint16_t* second = nullptr;
  uint32_t draw = 0;
  uint32_t begin = 0;  // place of the first element in its parameter's memory
};
void half_moment_elements(const HalfElements& elements, const MomentNumbers& numbers);

}  // namespace tanren
