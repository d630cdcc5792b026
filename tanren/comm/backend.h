// Which engine carries a run's ranks, and the communicator over it. Called by run and by own loops.
#pragma once

#include "tanren/comm/communicator.h"
#include "tanren/comm/world.h"

#include <chrono>
#include <memory>
#include <string>

namespace tanren {

struct CommOptions {
  std::string backend = "auto";  // or gloo
  std::string meeting;           // empty: where the world says
  // For all to come, and the longest that one operation may take.
  std::chrono::milliseconds patience = std::chrono::minutes(30);
};

// Waits until all ranks are there. ConfigError for a backend that is not here, CommError.
std::unique_ptr<Communicator> make_communicator(const World& world, const CommOptions& options);

}  // namespace tanren
