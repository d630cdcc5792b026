// Fault: an error of a device or of one of its libraries whose words do not name the cause. Most
// often memory ran out where no allocator counts it, or the data held an index that a table does
// not have. Works on text only and reads nothing from the device except its host-side counters.
// Called by train/ after a step or an evaluation failed, and by Recovery when it gives up.
#pragma once

#include "tanren/memory/gauge.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tanren {

enum class Fault {
  none,
  memory,  // a library could not be set up or got no room: cuBLAS, cuDNN, cuFFT
  launch,  // a kernel did not start, or broke off
  index,   // a device-side assert, or an index out of range on the host
  graph,   // inside a compiled graph, whose interface reports no cause
};

// The fault that an error's message reports.
Fault fault_of(std::string_view message);

// The last values of a gauge. After a fault the device may not answer; the missing values then stay
// unchanged.
struct MemoryState {
  int64_t live = 0, peak = 0, limit = 0;  // bytes; 0: unknown
  std::vector<std::pair<std::string, int64_t>> owners;

  // Never throws.
  void update(const MemoryGauge& gauge);
};

// "often out of memory in disguise; tensors held 3.1 GiB, …; to confirm, …" for a fault of a step
// with `microbatch` samples (0: unknown). Empty for Fault::none.
std::string explanation(Fault fault, const MemoryState& state, int64_t microbatch);

}  // namespace tanren
