// The memory that memory.limit leaves for the tensors of a rank. Called by the code that fits
// plans.
#pragma once

#include "tanren/plan/plan.h"

#include <cstdint>

namespace tanren {

// The number of ranks of this process that share the limit. On the CPU it is all of them, on
// accelerators those of the accelerator with the most ranks.
int64_t sharers(const Plan& plan);

// Bytes of the plan's limit that are left for the tensors of one rank, after `standing_bytes`
// (ranks in threads share the limit); 0: no limit is known.
int64_t room_for_step(const Plan& plan, int64_t standing_bytes);

// The part of the limit that a peak takes. It is more than the peak's bytes, because pages are
// rounded up and freed pages lie between used ones.
int64_t taken(int64_t peak_bytes);
// The largest peak that takes no more than `room_bytes`; not above 0: none.
int64_t largest_peak(int64_t room_bytes);
// Whether a step with this peak fits into the room, including page rounding and fragmentation.
bool fits(int64_t peak_bytes, int64_t room_bytes);

// The smallest limit in MiB that leaves `bytes` beside the reserve.
int64_t smallest_limit(int64_t bytes);
// Whether such a limit is more than the plan's device has; on the CPU never.
bool is_more_than_device(const MemoryPlan& memory, int64_t mebibytes);

}  // namespace tanren
