// The rendezvous of ranks that are processes, at rank 0's address or in a file. If a rank does not
// come, comes twice or expects another number of ranks, the error on all ranks that came names it.
// Called by the communicators of Gloo and NCCL.
#pragma once

#include "tanren/comm/control/control.h"
#include "tanren/comm/world.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <string>

namespace tanren {

struct Rendezvous {
  c10::intrusive_ptr<c10d::Store>
      store;  // for this start of this run; rank 0 hosts it for the others
  std::unique_ptr<ControlChannel> control;
  std::string own_address;  // of this machine, at which the others reach it
};

// Waits until all ranks of `world` have come, at most `timeout`. CommError; ConfigError, on all
// ranks that came, for a place where they cannot meet and for ranks that were not started as one
// run.
Rendezvous join_rendezvous(const World& world, std::chrono::milliseconds timeout);

}  // namespace tanren
