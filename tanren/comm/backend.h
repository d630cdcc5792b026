// Which engine carries a run's ranks, and the communicator over it. Called by run.
#pragma once

#include "tanren/comm/communicator.h"
#include "tanren/comm/world.h"

#include <chrono>
#include <memory>
#include <string>

namespace tanren {

struct CommOptions {
  std::string backend = "auto";  // or gloo, nccl
  std::string rendezvous;        // a URL for set_rendezvous(); empty: where the world says
  at::Device device = at::kCPU;  // whose tensors this rank has
  // For all to come, and the longest that one operation may take: a lost rank is known at once
  // anyway.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

struct CommChoice {
  std::string backend;  // single, gloo, nccl
  std::string reason;   // why it is this one, without the engine's name: "the
                        // tensors are on the CPU"
};

// ConfigError for a backend of no known name.
CommChoice choose_backend(const World& world, const CommOptions& options);

// Waits until all ranks are there. ConfigError, CommError.
std::unique_ptr<Communicator> make_communicator(World world, const CommOptions& options);

// Why NCCL cannot be had here; empty where it can.
std::string why_no_nccl();

}  // namespace tanren
