// Advice for a model that does not fit: how many stages of it would. Called by fit_memory.
#pragma once

#include "tanren/forecast/fit_memory.h"

#include <cstdint>
#include <string>

namespace tanren {

// "parallel.pipeline = 2 …": the least of 2, 4 and 8 stages of which each fits into `room_bytes` of
// a rank, with the microbatch and the schedule of `least`. Empty: none of them fits, ranks in
// threads share the memory, the model's blocks are not known, or the run cannot have stages.
std::string fitting_stages(const FitInput& input, const Tried& least, int64_t room_bytes);

}  // namespace tanren
