#include "tanren/memory/gauge.h"

#include "tanren/memory/cpu_allocator.h"

#include <ATen/DeviceAccelerator.h>

#include <algorithm>
#include <array>
#include <atomic>

namespace tanren {

namespace {

// An accelerator's allocator has only one peak, and a restart resets it. This keeps the largest
// peak before a restart, for the whole process, like the allocator's.
std::atomic<int64_t>& peak_before_restart(at::Device device) {
  constexpr size_t kMostDevices = 64;
  static std::array<std::atomic<int64_t>, kMostDevices> peaks{};
  return peaks.at(static_cast<size_t>(device.index()));
}

}  // namespace

bool MemoryGauge::counts() const { return !device_.is_cpu() || cpu_allocator_installed(); }

int64_t MemoryGauge::live() const {
  if (!device_.is_cpu()) {
    return at::accelerator::getDeviceStats(device_.index()).allocated_bytes[0].current;
  }
  return cpu_allocator_installed() ? cpu_memory_stats().live_bytes : 0;
}

int64_t MemoryGauge::peak() const {
  if (!device_.is_cpu()) {
    return at::accelerator::getDeviceStats(device_.index()).allocated_bytes[0].peak;
  }
  return cpu_allocator_installed() ? cpu_memory_stats().recent_peak_bytes : 0;
}

int64_t MemoryGauge::whole_peak() const {
  if (device_.is_cpu()) return cpu_allocator_installed() ? cpu_memory_stats().peak_bytes : 0;
  return std::max(peak(), peak_before_restart(device_).load());
}

void MemoryGauge::restart() {
  if (!device_.is_cpu()) {
    peak_before_restart(device_).store(whole_peak());
    at::accelerator::resetPeakStats(device_.index());
  } else if (cpu_allocator_installed()) {
    restart_cpu_memory_peak();
  }
}

int64_t MemoryGauge::limit() const {
  if (device_.is_cpu()) {
    return cpu_allocator_installed() ? cpu_memory_limit() - cpu_memory_reserve() : 0;
  }
  const auto [free, total] = at::accelerator::getMemoryInfo(device_.index());
  const auto stats = at::accelerator::getDeviceStats(device_.index());
  return static_cast<int64_t>(std::min(free, total)) + stats.reserved_bytes[0].current;
}

int64_t MemoryGauge::cached() const {
  if (device_.is_cpu()) return cpu_allocator_installed() ? cpu_memory_stats().cached_bytes : 0;
  const auto stats = at::accelerator::getDeviceStats(device_.index());
  return stats.reserved_bytes[0].current - stats.allocated_bytes[0].current;
}

int64_t MemoryGauge::context() const {
  if (device_.is_cpu()) return 0;
  const auto [free, total] = at::accelerator::getMemoryInfo(device_.index());
  const auto stats = at::accelerator::getDeviceStats(device_.index());
  return static_cast<int64_t>(total - free) - stats.reserved_bytes[0].current;
}

void MemoryGauge::release_cache() const {
  if (!device_.is_cpu()) at::accelerator::emptyCache();
  if (cpu_allocator_installed()) trim_cpu_memory();
}

std::vector<std::pair<std::string, int64_t>> MemoryGauge::owners() const {
  if (!device_.is_cpu() || !cpu_allocator_installed()) return {};
  return kinds_by_size(cpu_memory_by_kind());
}

std::vector<std::pair<std::string, int64_t>> kinds_by_size(
    const std::array<int64_t, kNumMemoryKinds>& bytes) {
  std::vector<std::pair<std::string, int64_t>> result;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > 0) result.emplace_back(std::string(kMemoryKindNames[i]), bytes[i]);
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return result;
}

}  // namespace tanren
