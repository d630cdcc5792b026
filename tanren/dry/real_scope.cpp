#include "tanren/dry/real_scope.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdlib>

namespace tanren {
namespace {

constexpr size_t kFrontBytes = 64;
constexpr uint8_t kPriority = 100;  // equal to that of tanren's allocator, which is restored

// Memory of aligned_alloc with its size in front, reported to a TraceScope.
class PlainAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = nullptr;
    if (bytes > 0) {
      const size_t whole = (bytes + 2 * kFrontBytes - 1) / kFrontBytes * kFrontBytes;
      auto* start = static_cast<std::byte*>(std::aligned_alloc(kFrontBytes, whole));
      TORCH_CHECK_WITH(OutOfMemoryError, start != nullptr, "[dry run] no room for ", bytes,
                       " bytes of a kernel that is tried");
      *reinterpret_cast<size_t*>(start) = bytes;
      data = start + kFrontBytes;
      report(data, static_cast<int64_t>(bytes));
    }
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }

 private:
  static void release(void* data) {
    if (data == nullptr) return;
    std::byte* start = static_cast<std::byte*>(data) - kFrontBytes;
    report(data, -static_cast<int64_t>(*reinterpret_cast<size_t*>(start)));
    std::free(start);
  }
  static void report(void* data, int64_t bytes) {
    c10::reportMemoryUsageToProfiler(data, bytes, 0, 0, c10::Device(c10::kCPU));
  }
};

c10::Allocator* plain_allocator() {
  static auto* const allocator = new PlainAllocator;  // tensors may outlive everything static
  return allocator;
}

}  // namespace

RealScope::RealScope() : before_(c10::GetAllocator(c10::kCPU)) {
  c10::SetAllocator(c10::kCPU, plain_allocator(), kPriority);
}

RealScope::~RealScope() { c10::SetAllocator(c10::kCPU, before_, kPriority); }

}  // namespace tanren
