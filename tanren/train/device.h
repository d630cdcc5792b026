// The process's devices: which accelerators it can use, loading CUDA when a run may want it, and
// the switches that a plan sets.
#pragma once

#include "tanren/comm/world.h"
#include "tanren/plan/plan.h"

#include <c10/core/Device.h>

#include <functional>
#include <string>

namespace tanren {

// What torch knows about CUDA devices. Loads libtorch_cuda.so only if a driver exists; otherwise
// loading it would cost 0.3 s and hundreds of MB for nothing.
Accelerators probe_cuda();
// Gives this process a share of each CUDA device's memory. Call it before the first use of one.
void limit_cuda(double share);

// The kind of accelerator that a program can use. The default is CUDA.
struct AcceleratorKind {
  std::string name = "cuda";                             // as in run.device
  std::function<Accelerators()> probe = probe_cuda;      // called unless run.device is "cpu"
  std::function<void(double share)> limit = limit_cuda;  // of each device's memory, (0, 1]
};

// Adds the usable accelerators of this kind to `machine`, unless the device asked for is the CPU.
void probe_accelerators(Machine& machine, const std::string& asked_device,
                        const AcceleratorKind& kind = {});

// Returns `machine` with what the launcher reports about this process. `environment` shows whether
// the process has its cores to itself (Slurm's binding).
Machine with_world(Machine machine, const World& world,
                   const Environment& environment = process_environment());

// Sets the CPU's allocator and its limit, for tensors made from now on.
void apply_memory_plan(const MemoryPlan& plan);

// Sets the CPU's allocator, threads, determinism, matrix-product precision and the fp16 convolution
// fix for the whole process. Returns the device.
at::Device apply_device_plan(const Plan& plan);

}  // namespace tanren
