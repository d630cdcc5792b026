// A simulated accelerator for tests: devices "sim:<i>" behind torch's dispatch key PrivateUse1. A
// device runs the CPU's kernels at launch. The host cannot touch its memory. Vector clocks
// (ordering.h) check every launch: a write and another access of the same byte are a violation
// unless a stream's order, an event or a host wait orders them, even if the numbers are right.
// Whatever makes the host of a CUDA device wait counts as a wait here. Docs: docs/devices.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tanren::sim {

struct Options {
  int devices = 4;
  size_t bytes = size_t{1} << 30;  // memory of each
};

// Adds the devices to this process, for good. Call it once, before the process's first backward:
// autograd then starts its threads, one for each device.
void install(const Options& options = {});
bool installed();

// Since the process began.
struct Counts {
  int64_t kernels = 0;
  int64_t downloads = 0;  // the host waited for values: .item(), .cpu(), sizes that depend on data
  int64_t uploads = 0;    // the host waited for a copy of values to the device
  int64_t synchronisations = 0;  // the host waited for an event, a stream, a device or freed memory
  int64_t waits() const { return downloads + uploads + synchronisations; }
};
Counts counts();

// Returns and clears the number of waits by caller. The caller is the first function of tanren on
// the host's stack (needs a program linked with -rdynamic).
std::map<std::string, int64_t> take_waits();

// One line for each violation since the last call, at most 20.
std::vector<std::string> take_violations();

// The message of the fault that a kernel of `device` left, and forgets it; empty: none. A faulty
// device throws it at each wait of the host.
std::string take_fault(int device);

// Bytes that `device` may hold; at most Options::bytes.
void set_limit(int device, size_t bytes);
std::vector<size_t> memory_limits();  // by device
// Bytes that tensors of `device` hold.
size_t live_bytes(int device);

// Allocations of device memory so far. fail_allocation: the allocation with this number will fail
// once, with c10::OutOfMemoryError; 0: none.
int64_t num_allocations();
void fail_allocation(int64_t number);

}  // namespace tanren::sim
