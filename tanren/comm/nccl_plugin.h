// The interface between tanren and its optional plugin for CUDA (base/cuda_plugin.h) for runs that
// ask for NCCL: the type and the name of the plugin's function. Both sides are
// built against the same libtorch. Called by backend.cpp.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

namespace tanren {

struct NcclRequest {
  c10::intrusive_ptr<c10d::Store> store;  // of the ranks that take part
  int rank = 0;
  int size = 1;
  int device = 0;                     // index of the CUDA device of this rank
  std::chrono::milliseconds timeout;  // the longest that one operation may take
};

// Throws what c10d throws.
using NcclBackend = c10::intrusive_ptr<c10d::Backend>(const NcclRequest& request);
// The number changes with NcclRequest.
inline constexpr const char* kNcclBackend = "tanren_nccl_backend_1";

}  // namespace tanren
