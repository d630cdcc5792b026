// The CPU allocator: large tensors from one arena of cached huge pages (huge_arena.h), small ones
// from malloc; every byte counted. Installed once, before the work starts, for the whole process;
// thread-safe and safe over fork. Never destroyed: a tensor may be freed by any thread, after main,
// and after uninstalling; tensors made before installing go back where they came from.
// The run installs it as `memory.allocator` says; own programs call install_cpu_allocator().
#pragma once

#include "tanren/base/memory_tag.h"

#include <array>
#include <cstdint>

namespace tanren {

// Smaller tensors come from malloc, which keeps their pages itself.
constexpr int64_t kLargeTensorBytes = 32 << 10;

struct MemoryStats {
  int64_t live_bytes = 0;         // asked for by tensors that are alive, exactly
  int64_t peak_bytes = 0;         // the largest live_bytes so far
  int64_t recent_peak_bytes = 0;  // and since restart_cpu_memory_peak()
  int64_t cached_bytes = 0;       // pages held for large tensors, beyond what these use
};

// Live bytes of each MemoryKind, by its number.
using MemoryByKind = std::array<int64_t, kNumMemoryKinds>;

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
// Live bytes by what they are for (memory_tag.h); they sum to live_bytes.
MemoryByKind cpu_memory_by_kind();
// recent_peak_bytes begins again at what is live now.
void restart_cpu_memory_peak();

// At most `limit` bytes for tensors, cached pages included (0: no limit); of it `reserve` is left to
// what is essential (MustSucceedScope). What does not fit, even without the cache, throws
// c10::OutOfMemoryError, and the memory that there is stays as it was.
void set_cpu_memory_limit(int64_t limit, int64_t reserve = 0);
int64_t cpu_memory_limit();
int64_t cpu_memory_reserve();
// Bytes that the limit bounds: live small tensors, and pages for large ones, used or cached.
int64_t cpu_memory_charged();

// For tests: this thread's allocation number `index` from now on (0: the next) fails once.
void fail_cpu_allocation(int64_t index);
// Allocations of this thread that fail_cpu_allocation() still waits for; below 0: it has failed.
int64_t cpu_allocations_until_failure();

// Gives cached pages back to the system until at most `keep` bytes stay; the next large tensors
// pay for fresh ones. Returns the bytes given back. train_loop calls it after each evaluation and
// at its end; without being asked, pages beyond the peak of the last 65 536 to 131 072 large
// allocations go by themselves, and all that is cached goes when memory runs out.
int64_t trim_cpu_memory(int64_t keep = 0);

}  // namespace tanren
