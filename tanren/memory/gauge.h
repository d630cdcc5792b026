// MemoryGauge: the bytes that tensors hold on the run's device, whichever allocator it has, so that
// code that reacts to memory is written once for CPU and accelerator. Reads counters only;
// restart() must not be called while another thread reads peak().
#pragma once

#include "tanren/base/memory_tag.h"

#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

class MemoryGauge {
 public:
  explicit MemoryGauge(at::Device device) : device_(device) {}

  // False if the CPU's allocator is torch's, which does not count: the numbers below are then 0.
  bool counts() const;
  int64_t live() const;
  // The largest live() since the last restart().
  int64_t peak() const;
  void restart();
  // The largest live() since the process began; restart() does not reset it.
  int64_t whole_peak() const;
  // What tensors may hold in all, without the reserve for essential allocations: the budget, or the
  // device's memory; 0: unknown.
  int64_t limit() const;
  // What the allocator keeps beyond live(): its cache, and the holes between live blocks.
  int64_t cached() const;
  // On an accelerator, the memory in use outside of the allocator: the context of this process,
  // what libraries take for themselves, and other processes. On the CPU 0.
  int64_t context() const;
  // Gives the allocator's cache back.
  void release_cache() const;
  // Live bytes by kind, the largest first; empty if the allocator does not count by kind.
  std::vector<std::pair<std::string, int64_t>> owners() const;

 private:
  at::Device device_;
};

// The kinds that hold memory, by name, the largest first.
std::vector<std::pair<std::string, int64_t>> kinds_by_size(
    const std::array<int64_t, kNumMemoryKinds>& bytes);

}  // namespace tanren
