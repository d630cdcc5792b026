// The line of each rank at the start of a run of several: where it runs and on which device.
// Internal to run/.
#pragma once

#include "tanren/plan/plan.h"
#include "tanren/train/parts.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

// "rank 1 of 2: cuda:1 (NVIDIA H100 80GB HBM3), 8 threads, nccl, node-a, process 4711"
std::string rank_line(const Plan& plan, std::string_view engine, std::string_view host,
                      int64_t process);

// The lines of all ranks, on every rank; none if there is one rank. Every rank calls it.
std::vector<std::string> rank_lines(const Parts& parts);

}  // namespace tanren
