#include "tanren/memory/cpu_allocator.h"

#include "tanren/base/text.h"
#include "tanren/memory/huge_arena.h"
#include "tanren/memory/shortage.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

namespace tanren {

namespace {

constexpr size_t kAlignment = 64;
constexpr uint8_t kPriority = 100;  // above any that libtorch registers

// Under the address sanitizer the allocator only counts, because a cache would hide every use after
// free.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kMayCache = false;
#else
constexpr bool kMayCache = true;
#endif

// Lies right before the data, within the kAlignment bytes that each block has in front.
struct Header {
  uint64_t bytes : 56;
  uint64_t kind : 8;
  void* origin;  // malloc's pointer; null: the block is the arena's
};
static_assert(sizeof(Header) == 16);

constexpr size_t kLargest = size_t{1} << 47;

// Counts down this thread's allocations to the one that must fail (fail_cpu_allocation).
thread_local int64_t allocations_until_failure = INT64_MAX;

Header& header_of(void* data) { return static_cast<Header*>(data)[-1]; }

// Twice the machine's memory, so that the arena can fragment and never has to move blocks. At most
// a quarter of a limit on address space.
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
            .peak_bytes = std::max(peak_.load(std::memory_order_relaxed),
                                   recent_peak_.load(std::memory_order_relaxed)),
            .recent_peak_bytes = recent_peak_.load(std::memory_order_relaxed),
            .cached_bytes = cached_.load(std::memory_order_relaxed)};
  }

  MemoryByKind by_kind() const {
    MemoryByKind result{};
    for (size_t i = 0; i < result.size(); ++i) {
      result[i] = by_kind_[i].load(std::memory_order_relaxed);
    }
    return result;
  }

  void restart_peak() {
    raise(peak_, recent_peak_.load());
    recent_peak_.store(live_.load());
  }

  void set_limit(int64_t limit, int64_t reserve) {
    limit_.store(limit > 0 ? limit : INT64_MAX, std::memory_order_relaxed);
    reserve_.store(limit > 0 ? std::min(reserve, limit) : 0, std::memory_order_relaxed);
  }
  int64_t limit() const {
    const int64_t limit = limit_.load(std::memory_order_relaxed);
    return limit == INT64_MAX ? 0 : limit;
  }
  int64_t reserve() const { return reserve_.load(std::memory_order_relaxed); }
  int64_t charged() const {
    return from_malloc_.load(std::memory_order_relaxed) + held_.load(std::memory_order_relaxed);
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

  // The one place that obtains memory: data of `bytes` with its header; c10::OutOfMemoryError.
  void* obtain(size_t bytes) {
    const bool may_fit = bytes < kLargest;
    const bool fails = is_to_fail();
    void* data = may_fit && !fails ? try_obtain(bytes) : nullptr;
    if (data == nullptr && may_fit) {
      const bool freed = !fails && trim(0) > 0;
      if (freed || memory_tag().must_succeed) data = try_obtain(bytes);
    }
    if (data == nullptr) refuse(bytes);
    Header& header = header_of(data);
    header.kind = static_cast<uint64_t>(memory_tag().kind);
    count(data, static_cast<int64_t>(bytes), header.kind);
    return data;
  }

  static bool is_to_fail() {
    return allocations_until_failure != INT64_MAX && allocations_until_failure-- == 0;
  }

  [[noreturn]] void refuse(size_t bytes) const {
    ++memory_tag().refusals;
    note_shortage(static_cast<int64_t>(bytes));
    const int64_t limit = limit_.load(std::memory_order_relaxed);
    const std::string allowed = limit == INT64_MAX ? "" : fmt::format(" of {} allowed", limit);
    TORCH_CHECK_WITH(OutOfMemoryError, false, "[memory] no room for a tensor of ", bytes,
                     " bytes (tensors hold ", live_.load(), allowed,
                     "); lower the batch, or raise the limit");
  }

  // The total that may be charged; only what must succeed may use the reserve.
  int64_t allowance() const {
    const int64_t limit = limit_.load(std::memory_order_relaxed);
    return memory_tag().must_succeed ? limit : limit - reserve_.load(std::memory_order_relaxed);
  }

  // Null if there is no room, or if the limit would be exceeded.
  void* try_obtain(size_t bytes) {
    const int64_t allowed = allowance();
    if (bytes >= kLargeTensorBytes && cache_.load(std::memory_order_relaxed)) {
      const std::lock_guard lock(mutex_);
      if (void* block = arena_.allocate(bytes + kAlignment)) {
        const int64_t small = from_malloc_.load(std::memory_order_relaxed);
        const int64_t excess = small + static_cast<int64_t>(arena_.held_bytes()) - allowed;
        if (excess > 0) arena_.give_back(static_cast<size_t>(excess));
        const bool fits = small + static_cast<int64_t>(arena_.held_bytes()) <= allowed;
        if (!fits) {
          arena_.free(block, bytes + kAlignment);
          arena_.give_back(static_cast<size_t>(excess));
        }
        count_cached();
        if (!fits) return nullptr;
        void* data = static_cast<std::byte*>(block) + kAlignment;
        header_of(data) = {.bytes = bytes, .kind = 0, .origin = nullptr};
        return data;
      }
    }
    const auto size = static_cast<int64_t>(bytes);
    const int64_t small = from_malloc_.fetch_add(size, std::memory_order_relaxed) + size;
    if (small + held_.load(std::memory_order_relaxed) > allowed) {
      from_malloc_.fetch_sub(size, std::memory_order_relaxed);
      return nullptr;
    }
    void* origin = std::malloc(bytes + kAlignment);
    if (origin == nullptr) {
      from_malloc_.fetch_sub(size, std::memory_order_relaxed);
      return nullptr;
    }
    // malloc aligns to 16: between 16 and 64 bytes lie before the data.
    const auto address = reinterpret_cast<uintptr_t>(origin) + sizeof(Header);
    void* data = reinterpret_cast<void*>((address + kAlignment - 1) / kAlignment * kAlignment);
    header_of(data) = {.bytes = bytes, .kind = 0, .origin = origin};
    return data;
  }

  static void release(void* data) {
    if (data == nullptr) return;
    CpuAllocator& self = instance();
    const Header header = header_of(data);
    const auto bytes = static_cast<int64_t>(header.bytes);
    self.count(data, -bytes, header.kind);
    if (header.origin != nullptr) {
      self.from_malloc_.fetch_sub(bytes, std::memory_order_relaxed);
      std::free(header.origin);
      return;
    }
    const std::lock_guard lock(self.mutex_);
    self.arena_.free(static_cast<std::byte*>(data) - kAlignment, header.bytes + kAlignment);
    self.count_cached();
  }

  void count(void* data, int64_t bytes, size_t kind) {
    by_kind_[kind].fetch_add(bytes, std::memory_order_relaxed);
    const int64_t live = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    raise(recent_peak_, live);
    if (c10::memoryProfilingEnabled()) {
      c10::reportMemoryUsageToProfiler(
          data, bytes, static_cast<size_t>(live),
          static_cast<size_t>(live + cached_.load(std::memory_order_relaxed)),
          c10::Device(c10::kCPU));
    }
  }

  static void raise(std::atomic<int64_t>& peak, int64_t value) {
    int64_t before = peak.load(std::memory_order_relaxed);
    while (value > before &&
           !peak.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
    }
  }

  // Call this with mutex_ held.
  void count_cached() {
    const auto held = static_cast<int64_t>(arena_.held_bytes());
    held_.store(held, std::memory_order_relaxed);
    cached_.store(held - static_cast<int64_t>(arena_.used_bytes()), std::memory_order_relaxed);
  }

  std::mutex mutex_;
  HugeArena arena_;  // guarded by mutex_
  std::atomic<bool> cache_{kMayCache};
  std::atomic<int64_t> live_{0}, cached_{0};
  std::atomic<int64_t> recent_peak_{0}, peak_{0};  // peak_: before the last restart
  std::atomic<int64_t> from_malloc_{0}, held_{0};  // live bytes of malloc, the arena's pages
  std::atomic<int64_t> limit_{INT64_MAX}, reserve_{0};
  std::array<std::atomic<int64_t>, kNumMemoryKinds> by_kind_{};
};

CpuAllocator& CpuAllocator::instance() {
  // Never destroyed: torch keeps the pointer for ever, and static tensors are freed after main.
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

MemoryByKind cpu_memory_by_kind() { return CpuAllocator::instance().by_kind(); }

void restart_cpu_memory_peak() { CpuAllocator::instance().restart_peak(); }

void set_cpu_memory_limit(int64_t limit, int64_t reserve) {
  CpuAllocator::instance().set_limit(limit, reserve);
}

int64_t cpu_memory_limit() { return CpuAllocator::instance().limit(); }

int64_t cpu_memory_reserve() { return CpuAllocator::instance().reserve(); }

int64_t cpu_memory_charged() { return CpuAllocator::instance().charged(); }

void fail_cpu_allocation(int64_t index) { allocations_until_failure = index; }

int64_t cpu_allocations_until_failure() { return allocations_until_failure; }

int64_t trim_cpu_memory(int64_t keep) {
  return static_cast<int64_t>(CpuAllocator::instance().trim(static_cast<size_t>(keep)));
}

}  // namespace tanren
