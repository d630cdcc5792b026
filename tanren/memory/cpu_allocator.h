// The CPU allocator: large tensors from one arena of cached huge pages (huge_arena.h), small ones
// from malloc; every byte is counted. Installed once, before the work starts, for the whole
// process; thread-safe and safe over fork. Never destroyed: any thread may free a tensor, also
// after main and after uninstalling. Tensors made before installing are freed by the allocator that
// made them. The run installs it as `memory.allocator` says; own programs call
// install_cpu_allocator().
#pragma once

#include "tanren/base/memory_tag.h"

#include <array>
#include <cstdint>

namespace tanren {

// Smaller tensors come from malloc, which keeps their pages itself.
constexpr int64_t kLargeTensorBytes = 32 << 10;

struct MemoryStats {
  int64_t live_bytes = 0;         // exactly what live tensors requested
  int64_t peak_bytes = 0;         // the largest live_bytes so far
  int64_t recent_peak_bytes = 0;  // the largest since restart_cpu_memory_peak()
  int64_t cached_bytes = 0;       // pages held for large tensors but not used by them
};

// Live bytes of each MemoryKind, by its number.
using MemoryByKind = std::array<int64_t, kNumMemoryKinds>;

struct CpuAllocatorOptions {
  // false: everything comes from malloc and is only counted, as always under the address sanitizer.
  bool cache = true;
};

// Makes it torch's CPU allocator, for tensors made from now on; a second call changes the options.
// Must not be called while other threads make tensors.
void install_cpu_allocator(const CpuAllocatorOptions& options = {});
// New tensors come from torch's own allocator again.
void uninstall_cpu_allocator();
bool cpu_allocator_installed();

// Covers the tensors made through it since the process began. A few relaxed loads.
MemoryStats cpu_memory_stats();
// Live bytes by kind (memory_tag.h); they sum to live_bytes.
MemoryByKind cpu_memory_by_kind();
// Sets recent_peak_bytes to what is live now.
void restart_cpu_memory_peak();

// Allows tensors at most `limit` bytes, cached pages included (0: no limit). `reserve` of them is
// left to essential allocations (MustSucceedScope). A tensor that does not fit, even without the
// cache, throws c10::OutOfMemoryError, and the memory in use stays as it was.
void set_cpu_memory_limit(int64_t limit, int64_t reserve = 0);
int64_t cpu_memory_limit();
int64_t cpu_memory_reserve();
// Bytes that the limit bounds: live small tensors, and pages for large ones, used or cached.
int64_t cpu_memory_charged();

// For tests: this thread's allocation number `index` from now on (0: the next) fails once.
void fail_cpu_allocation(int64_t index);
// The number of allocations that this thread can make before the one that fail_cpu_allocation()
// lets fail. Below 0: that one has failed.
int64_t cpu_allocations_until_failure();

// Gives cached pages back to the system until at most `keep` bytes stay; the next large tensors pay
// for fresh ones. Returns the bytes given back. train_loop calls it after each evaluation and at
// its end. Without a call, pages beyond the peak of the last 65 536 to 131 072 large allocations go
// back automatically, and the whole cache goes back when memory runs out.
int64_t trim_cpu_memory(int64_t keep = 0);

}  // namespace tanren
