// A Communicator over any backend of c10d, with or without a control channel that ends its waits
// when another rank is lost. Called by gloo.cpp, backend.cpp (NCCL) and users who have a process
// group of their own.
#pragma once

#include "tanren/comm/communicator.h"
#include "tanren/comm/control/control.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tanren {

// A backend, and what only its engine knows of it.
struct C10dBackend {
  c10::intrusive_ptr<c10d::Backend> backend;
  // Only for an engine whose abort may not end a wait: whether operations are under way.
  std::function<bool()> is_busy = {};
};

// A part of the ranks that is to be connected.
struct C10dPart {
  int rank;  // of this process in the part
  int size;
  std::string name;                   // unique among the parts of the run
  ControlChannel* control = nullptr;  // null: none
  std::vector<int> ranks = {};        // in the world, by rank in the part
};

struct C10dOptions {
  std::string name;              // of the engine
  bool in_place = false;         // it can gather into a tensor that already holds the part
  at::Device device = at::kCPU;  // device of the tensors it takes
  // The longest that the engine lets one operation take; 0: unknown.
  std::chrono::milliseconds timeout{0};
  // Only for an engine whose abort may not end a wait: whether operations are under way.
  std::function<bool()> is_busy = {};
  // It runs operations one after the other, so that messages go in groups (c10d_messages.h).
  bool in_groups = false;
  // Connects the ranks of a part; all of them call it. Empty: it cannot be split.
  std::function<C10dBackend(const C10dPart& part)> split = {};
};

std::unique_ptr<Communicator> c10d_communicator(c10::intrusive_ptr<c10d::Backend> backend,
                                                C10dOptions options,
                                                std::unique_ptr<ControlChannel> control = nullptr);

}  // namespace tanren
