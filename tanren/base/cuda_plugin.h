// libtanren_cuda.so: the optional plugin with what needs CUDA's headers (NCCL) or its compiler
// (kernels). It is built with -DTANREN_CUDA=ON, never linked, loaded once and kept. Thread-safe.
#pragma once

#include <string>

namespace tanren {

inline constexpr const char* kCudaPlugin = "libtanren_cuda.so";

struct CudaPlugin {
  void* handle = nullptr;  // for dlsym
  std::string missing;     // why it is null
};

// Looks beside the program first, then where the system looks for libraries. Call it after
// libtorch_cuda.so was loaded.
const CudaPlugin& cuda_plugin();

}  // namespace tanren
