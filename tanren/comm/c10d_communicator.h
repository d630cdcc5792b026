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

namespace tanren {

struct C10dOptions {
  std::string name;              // of the engine
  bool in_place = false;         // it can gather into a tensor that already holds the part
  at::Device device = at::kCPU;  // device of the tensors it takes
  // The longest that the engine lets one operation take; 0: unknown.
  std::chrono::milliseconds timeout{0};
  // Only for an engine whose abort may not end a wait: whether operations are under way.
  std::function<bool()> is_busy = {};
};

std::unique_ptr<Communicator> c10d_communicator(c10::intrusive_ptr<c10d::Backend> backend,
                                                C10dOptions options,
                                                std::unique_ptr<ControlChannel> control = nullptr);

}  // namespace tanren
