// The process's devices: loading CUDA when a run may want it, and the switches that a plan sets.
#pragma once

#include "tanren/comm/world.h"
#include "tanren/plan/plan.h"

#include <c10/core/Device.h>

#include <string>

namespace tanren {

// Adds what torch knows about accelerators to `machine`. Loads libtorch_cuda.so only if the device
// asked for is not the CPU and a driver exists; otherwise loading it would cost 0.3 s and hundreds
// of MB for nothing.
void probe_accelerators(Machine& machine, const std::string& asked_device);

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
