// A Communicator over any backend of c10d, with or without a control channel that ends its waits
// when another rank is lost. Called by gloo.cpp, the NCCL plugin and users who have an own process
// group.
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
  bool in_place = false;         // it can gather into the tensor that holds the part already
  at::Device device = at::kCPU;  // whose tensors it carries
  // The longest that it lets one operation take; 0: not known.
  std::chrono::milliseconds timeout{0};
  // Of an engine whose abort may leave a wait as it was: whether anything is under way.
  std::function<bool()> is_busy = {};
};

std::unique_ptr<Communicator> c10d_communicator(c10::intrusive_ptr<c10d::Backend> backend,
                                                C10dOptions options,
                                                std::unique_ptr<ControlChannel> control = nullptr);

}  // namespace tanren
