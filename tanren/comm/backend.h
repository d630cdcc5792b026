// Chooses the engine for a run's ranks and makes the communicator over it. Called by run.
#pragma once

#include "tanren/comm/communicator.h"
#include "tanren/comm/world.h"

#include <chrono>
#include <memory>
#include <string>

namespace tanren {

struct CommOptions {
  std::string backend = "auto";  // or gloo, nccl
  std::string rendezvous;        // a URL for set_rendezvous(); empty: as in the World
  at::Device device = at::kCPU;  // device of this rank's tensors
  // How long all ranks may take to connect, and the longest that one operation may take. A lost
  // rank is noticed at once anyway.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

struct CommChoice {
  std::string backend;  // single, gloo, nccl
  std::string reason;   // why it is this one, without the engine's name: "the
                        // tensors are on the CPU"
};

// ConfigError for an unknown backend name.
CommChoice choose_backend(const World& world, const CommOptions& options);

// Waits until all ranks have connected. ConfigError, CommError.
std::unique_ptr<Communicator> make_communicator(World world, const CommOptions& options);

// Why NCCL is not available here; empty if it is.
std::string why_no_nccl();

}  // namespace tanren
