// Ranks that are processes, on this machine or several, over Gloo, which libtorch has inside. They meet
// at rank 0's address; who does not come, or comes twice, is named. Called by run.
#pragma once

#include "tanren/comm/communicator.h"
#include "tanren/comm/world.h"

#include <chrono>
#include <memory>

namespace tanren {

// Waits until all ranks of `world` are there, at most `timeout`, which is also the longest that one
// operation may take. CommError, ConfigError.
std::unique_ptr<Communicator> gloo_communicator(const World& world,
                                                std::chrono::milliseconds timeout);

}  // namespace tanren
