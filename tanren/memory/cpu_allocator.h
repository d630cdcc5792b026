// The CPU allocator: large tensors from one arena of cached huge pages (huge_arena.h), small ones
// from malloc; every byte counted. Installed once, before the work starts, for the whole process;
// thread-safe and safe over fork. Never destroyed: a tensor may be freed by any thread, after main,
// and after uninstalling; tensors made before installing go back where they came from.
// The run installs it as `memory.allocator` says; own programs call install_cpu_allocator().
#pragma once

#include <cstdint>

namespace tanren {

// Smaller tensors come from malloc, which keeps their pages itself.
constexpr int64_t kLargeTensorBytes = 32 << 10;

struct MemoryStats {
  int64_t live_bytes = 0;    // asked for by tensors that are alive, exactly
  int64_t peak_bytes = 0;    // the largest live_bytes so far
  int64_t cached_bytes = 0;  // pages held for large tensors, beyond what these use
};

struct CpuAllocatorOptions {
  // false: everything from malloc, only counted; so it is in any case under the address sanitizer.
  bool cache = true;
};

// Makes it torch's CPU allocator, for tensors from now on; a second call changes the options.
// Not to be called while other threads make tensors.
void install_cpu_allocator(const CpuAllocatorOptions& options = {});
// New tensors come from torch's own allocator again.
void uninstall_cpu_allocator();
bool cpu_allocator_installed();

// Of tensors made through it since the process began. A few relaxed loads.
MemoryStats cpu_memory_stats();
// Gives cached pages back to the system until at most `keep` bytes stay; the next large tensors
// pay for fresh ones. Returns the bytes given back. train_loop calls it after each evaluation and
// at its end; without being asked, pages beyond the peak of the last 65 536 to 131 072 large
// allocations go by themselves, and all that is cached goes when memory runs out.
int64_t trim_cpu_memory(int64_t keep = 0);

}  // namespace tanren
