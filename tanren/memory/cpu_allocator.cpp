#include "tanren/memory/cpu_allocator.h"

#include "tanren/memory/huge_arena.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <new>

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

namespace tanren {

namespace {

constexpr size_t kAlignment = 64;
constexpr uint8_t kPriority = 100;  // above any that libtorch registers

// Under the address sanitizer a cache would hide every use after free: it only counts then.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kMayCache = false;
#else
constexpr bool kMayCache = true;
#endif

// Stands right before the data, within the kAlignment bytes that each block has in front.
struct Header {
  size_t bytes;
  void* origin;  // malloc's pointer; null: the block is the arena's
};

Header& header_of(void* data) { return static_cast<Header*>(data)[-1]; }

// Twice the machine's memory, so that holes need never be closed by moving anything; a quarter of
// what a limit on address space allows.
size_t address_space() {
  size_t size = 2 * static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) *
                static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    size = std::min<size_t>(size, limit.rlim_cur / 4);
  }
  return size;
}

class CpuAllocator final : public c10::Allocator {
 public:
  static CpuAllocator& instance();

  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes == 0 ? nullptr : obtain(bytes);
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }

  void set_cache(bool cache) { cache_.store(cache && kMayCache, std::memory_order_relaxed); }

  MemoryStats stats() const {
    return {.live_bytes = live_.load(std::memory_order_relaxed),
            .peak_bytes = peak_.load(std::memory_order_relaxed),
            .cached_bytes = cached_.load(std::memory_order_relaxed)};
  }

  size_t trim(size_t keep) {
    const std::lock_guard lock(mutex_);
    const size_t given = arena_.trim(keep);
    count_cached();
    return given;
  }

 private:
  CpuAllocator() : arena_(kMayCache ? address_space() : 0) {
    ::pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                     [] { instance().mutex_.unlock(); });
  }

  // The one place where memory is got: data of `bytes` with its header; c10::OutOfMemoryError.
  void* obtain(size_t bytes) {
    void* data = bytes < SIZE_MAX / 2 ? try_obtain(bytes) : nullptr;
    if (data == nullptr && bytes < SIZE_MAX / 2 && trim(0) > 0) data = try_obtain(bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, data != nullptr, "[memory] no room for a tensor of ", bytes,
                     " bytes (tensors hold ", live_.load(), "); lower batch.microbatch");
    count(data, static_cast<int64_t>(bytes));
    return data;
  }

  void* try_obtain(size_t bytes) {
    if (bytes >= kLargeTensorBytes && cache_.load(std::memory_order_relaxed)) {
      const std::lock_guard lock(mutex_);
      if (void* block = arena_.allocate(bytes + kAlignment)) {
        count_cached();
        void* data = static_cast<std::byte*>(block) + kAlignment;
        header_of(data) = {bytes, nullptr};
        return data;
      }
    }
    void* origin = std::malloc(bytes + kAlignment);
    if (origin == nullptr) return nullptr;
    // malloc aligns to 16: between 16 and 64 bytes lie before the data.
    const auto address = reinterpret_cast<uintptr_t>(origin) + sizeof(Header);
    void* data = reinterpret_cast<void*>((address + kAlignment - 1) / kAlignment * kAlignment);
    header_of(data) = {bytes, origin};
    return data;
  }

  static void release(void* data) {
    if (data == nullptr) return;
    CpuAllocator& self = instance();
    const Header header = header_of(data);
    self.count(data, -static_cast<int64_t>(header.bytes));
    if (header.origin != nullptr) {
      std::free(header.origin);
      return;
    }
    const std::lock_guard lock(self.mutex_);
    self.arena_.free(static_cast<std::byte*>(data) - kAlignment, header.bytes + kAlignment);
    self.count_cached();
  }

  void count(void* data, int64_t bytes) {
    const int64_t live = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (live > peak && !peak_.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
    }
    if (c10::memoryProfilingEnabled()) {
      c10::reportMemoryUsageToProfiler(
          data, bytes, static_cast<size_t>(live),
          static_cast<size_t>(live + cached_.load(std::memory_order_relaxed)),
          c10::Device(c10::kCPU));
    }
  }

  // Under the lock.
  void count_cached() {
    cached_.store(
        static_cast<int64_t>(arena_.held_bytes()) - static_cast<int64_t>(arena_.used_bytes()),
        std::memory_order_relaxed);
  }

  std::mutex mutex_;
  HugeArena arena_;  // guarded by mutex_
  std::atomic<bool> cache_{kMayCache};
  std::atomic<int64_t> live_{0}, peak_{0}, cached_{0};
};

CpuAllocator& CpuAllocator::instance() {
  // torch keeps the pointer for ever, and static tensors are freed after main: never destroyed.
  alignas(CpuAllocator) static std::byte storage[sizeof(CpuAllocator)];
  static CpuAllocator* const allocator = ::new (storage) CpuAllocator;
  return *allocator;
}

}  // namespace

void install_cpu_allocator(const CpuAllocatorOptions& options) {
  CpuAllocator& allocator = CpuAllocator::instance();
  allocator.set_cache(options.cache);
  c10::SetAllocator(c10::kCPU, &allocator, kPriority);
}

void uninstall_cpu_allocator() {
  if (!cpu_allocator_installed()) return;
  c10::SetAllocator(c10::kCPU, c10::GetDefaultCPUAllocator(), kPriority);
}

bool cpu_allocator_installed() { return c10::GetAllocator(c10::kCPU) == &CpuAllocator::instance(); }

MemoryStats cpu_memory_stats() { return CpuAllocator::instance().stats(); }

int64_t trim_cpu_memory(int64_t keep) {
  return static_cast<int64_t>(CpuAllocator::instance().trim(static_cast<size_t>(keep)));
}

}  // namespace tanren
