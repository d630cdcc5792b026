// The NCCL half of libtanren_cuda.so: built with -DTANREN_CUDA=ON where nccl.h is, never linked.
#include "tanren/comm/nccl_plugin.h"

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <c10/cuda/CUDAGuard.h>

#include <cstdlib>

namespace {

// c10d's watchdog ends the process when an operation hangs. Here the control channel ends the
// waits, and the run reports why. Variables that are already set keep their values.
void let_the_process_live() {
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/0);
  ::setenv("TORCH_NCCL_ENABLE_MONITORING", "0", /*overwrite=*/0);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) c10::intrusive_ptr<c10d::Backend>
tanren_nccl_backend_1(const tanren::NcclRequest& request) {
  let_the_process_live();
  const c10::cuda::CUDAGuard on_device(static_cast<c10::DeviceIndex>(request.device));
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = request.timeout;
  auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(request.store, request.rank,
                                                           request.size, std::move(options));
  // Connects now, while all ranks are here, rather than at the first gradient.
  group->eagerConnectSingleDevice(
      at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(request.device)));
  return group;
}
