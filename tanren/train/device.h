// The process's devices: loading CUDA when a run may want it, and the switches that a plan sets.
#pragma once

#include "tanren/comm/world.h"
#include "tanren/plan/plan.h"

#include <c10/core/Device.h>

#include <string>

namespace tanren {

// Adds what torch knows of accelerators to `machine`. Loads libtorch_cuda.so only if the device
// asked for is not the CPU and a driver is there (0.3 s and hundreds of MB otherwise for nothing).
void probe_accelerators(Machine& machine, const std::string& asked_device);

// `machine` with what the launcher says of this process. `environment` tells whether the cores are its
// own (Slurm's binding).
Machine with_world(Machine machine, const World& world,
                   const Environment& environment = process_environment());

// Sets the CPU's allocator and its limit, for tensors from now on.
void apply_memory_plan(const MemoryPlan& plan);

// Sets the CPU's allocator, threads, determinism, matrix-product precision and the fp16 remedy for the whole process.
// Returns the device.
at::Device apply_device_plan(const Plan& plan);

}  // namespace tanren
