// A Communicator over any backend of c10d. Called by gloo.cpp, the NCCL plugin and users who have an own
// process group.
#pragma once

#include "tanren/comm/communicator.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <string>

namespace tanren {

// `in_place`: whether the backend can gather into the tensor that holds the part already.
// `device`: whose tensors it carries.
std::unique_ptr<Communicator> c10d_communicator(c10::intrusive_ptr<c10d::Backend> backend,
                                                std::string name, bool in_place,
                                                at::Device device = at::kCPU);

}  // namespace tanren
