// Ranks that are processes, on one machine or several, over the Gloo inside libtorch. They meet at
// rank 0's address or in a file. The error names a rank that does not come or comes twice. Called
// by backend.cpp.
#pragma once

#include "tanren/comm/communicator.h"
#include "tanren/comm/world.h"

#include <chrono>
#include <memory>

namespace tanren {

// Waits until all ranks of `world` have connected, at most `timeout`, which is also the longest
// that one operation may take. CommError, ConfigError.
std::unique_ptr<Communicator> gloo_communicator(const World& world,
                                                std::chrono::milliseconds timeout);

}  // namespace tanren
