// The rendezvous of the ranks that are processes, at rank 0's address or in a file: who does not come,
// comes twice or counts other ranks is named, on all that came. Called by the communicators of Gloo
// and NCCL.
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
      store;  // of this start of this run; rank 0 keeps it for the others
  std::unique_ptr<ControlChannel> control;
  std::string own_address;  // of this machine, as the others reach it
};

// Waits until all ranks of `world` are there, at most `timeout`. CommError; ConfigError for a place
// where they cannot meet and for ranks that were not started as one run, on all that came.
Rendezvous join_rendezvous(const World& world, std::chrono::milliseconds timeout);

}  // namespace tanren
