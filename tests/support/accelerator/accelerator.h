// A simulated accelerator, for tests: devices "sim:<i>" behind torch's key PrivateUse1. A device
// computes with the CPU's kernels when they are launched; the host cannot touch its memory; and
// vector clocks (ordering.h) judge every launch: two accesses of a byte that no stream order, event
// or host wait orders are a violation, whether the numbers came out right or not. What makes the
// host of a CUDA device wait is a counted wait here. Docs: docs/devices.md.
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
  int64_t uploads = 0;    // the host waited until the device had values: from pageable memory
  int64_t synchronisations = 0;  // the host waited for an event, a stream, a device or freed memory
  int64_t waits() const { return downloads + uploads + synchronisations; }
};
Counts counts();

// The waits so far by their caller, which is the first function of tanren on the host's stack
// (a program linked with -rdynamic), and forgets them.
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

// Allocations of device memory so far, and the number of the one to come that fails, once, with
// c10::OutOfMemoryError; 0: none.
int64_t num_allocations();
void fail_allocation(int64_t number);

}  // namespace tanren::sim
