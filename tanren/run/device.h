// The process's devices: loading CUDA when a run may want it, and the switches that a plan sets.
#pragma once

#include "tanren/plan/plan.h"

#include <c10/core/Device.h>

#include <string>

namespace tanren {

// Adds what torch knows of accelerators to `machine`. Loads libtorch_cuda.so only if the device
// asked for is not the CPU and a driver is there (0.3 s and hundreds of MB otherwise for nothing).
void probe_accelerators(Machine& machine, const std::string& asked_device);

// Sets the CPU's allocator and its limit, for tensors from now on.
void apply_memory_plan(const MemoryPlan& plan);

// Sets the CPU's allocator, threads, determinism, matrix-product precision and the fp16 remedy for the whole process.
// Returns the device.
at::Device apply_device_plan(const Plan& plan);

}  // namespace tanren
