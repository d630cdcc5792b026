#include "tests/support/accelerator/simulator.h"

#include <fmt/format.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace tanren::sim {

namespace {

constexpr auto kAll = at_index(c10::CachingAllocator::StatType::AGGREGATE);

// Memory may be freed only after its users on other streams have ended or been reported to the
// allocator (record_stream). The accesses of the owning stream stay, because the next owner has the
// same stream. Call it under the mutex.
void judge_free(OneDevice& device, const Block& block) {
  const Clock& clock = state().clocks[at_index(block.stream)];
  device.shadow.sift({block.begin, block.begin + block.size}, [&](const Access& access) {
    if (access.stream == block.stream) return false;
    if (!access.before(clock) && !access.before(state().host) &&
        block.recorded.count(access.stream) == 0) {
      violate(
          fmt::format("memory of {} is freed while {} on {} may use it; record_stream is missing",
                      name_of(block.stream), access.operation, name_of(access.stream)));
    }
    return true;
  });
}

void set_reserved(OneDevice& device) {
  auto& reserved = device.stats.reserved_bytes[kAll];
  reserved.current = static_cast<int64_t>(device.memory.reserved());
  reserved.peak = std::max(reserved.peak, reserved.current);
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    const auto index = current_device();
    const c10::Device device(kSim, index);
    if (bytes == 0) return {nullptr, nullptr, [](void*) {}, device};
    bool fails = false;
    {
      const std::lock_guard lock(state().mutex);
      fails = ++state().allocations == state().failing;
    }
    std::optional<void*> address;
    if (!fails) address = take(index, bytes);
    if (!fails && !address) {
      emptyCache({0, 0});
      address = take(index, bytes);
    }
    if (!address) {
      std::unique_lock lock(state().mutex);
      OneDevice& owner = state().devices[at_index(index)];
      ++owner.stats.num_ooms;
      const size_t live = owner.memory.live(), limit = owner.memory.limit();
      lock.unlock();
      TORCH_CHECK_WITH(OutOfMemoryError, false, device, " out of memory. Tried to allocate ", bytes,
                       " bytes. ", live, " bytes are in use; the limit is ", limit, " bytes.");
    }
    return {*address, *address, &release, device};
  }

  static std::optional<void*> take(c10::DeviceIndex index, size_t bytes) {
    const std::lock_guard lock(state().mutex);
    OneDevice& device = state().devices[at_index(index)];
    const auto taken = device.memory.take(bytes, current_stream(index));
    if (!taken) return std::nullopt;
    if (taken->fresh) {  // the device has finished what it did with this memory
      device.shadow.sift({taken->begin, taken->begin + taken->size},
                         [](const Access&) { return true; });
    }
    ++device.stats.num_device_alloc;
    device.stats.allocated_bytes[kAll].increase(taken->size);
    set_reserved(device);
    return device.memory.address_of(taken->begin);
  }

  static void release(void* data) {
    const std::lock_guard lock(state().mutex);
    OneDevice& device = *holder_of(data);
    const Block block = device.memory.free(data);
    ++device.stats.num_device_free;
    device.stats.allocated_bytes[kAll].decrease(block.size);
    judge_free(device, block);
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    launch(current_stream(current_device()), "copy of a storage",
           {{from, bytes, false}, {to, bytes, true}},
           [&] { std::memmove(inside(to), inside(from), bytes); });
  }
  bool initialized() override { return installed(); }

  // Like cudaFree, waits until the device has finished.
  void emptyCache(c10::MempoolId_t /*pool*/) override {
    for (int i = 0; i < state().options.devices; ++i) {
      DeviceMemory& memory = state().devices[at_index(i)].memory;
      {
        const std::lock_guard lock(state().mutex);
        if (memory.reserved() == memory.live()) continue;
      }
      wait_for(streams_of(static_cast<c10::DeviceIndex>(i)), &Counts::synchronisations);
      const std::lock_guard lock(state().mutex);
      memory.release_cached();
      set_reserved(state().devices[at_index(i)]);
    }
  }
  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override {
    const std::lock_guard lock(state().mutex);
    OneDevice* const device = holder_of(pointer.get());
    if (device == nullptr) return;
    Block* const block = device->memory.block_at(device->memory.offset_of(pointer.get()));
    if (block != nullptr) {
      block->recorded.insert(stream_at(stream.device_index(), static_cast<int>(stream.id())));
    }
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const std::lock_guard lock(state().mutex);
    return state().devices.at(at_index(device)).stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    const std::lock_guard lock(state().mutex);
    state().devices.at(at_index(device)).stats.allocated_bytes[kAll].reset_accumulated();
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    const std::lock_guard lock(state().mutex);
    auto& stats = state().devices.at(at_index(device)).stats;
    stats.allocated_bytes[kAll].reset_peak();
    stats.reserved_bytes[kAll].reset_peak();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const std::lock_guard lock(state().mutex);
    const DeviceMemory& memory = state().devices.at(at_index(device)).memory;
    return {memory.limit() - std::min(memory.limit(), memory.reserved()), memory.limit()};
  }
};

}  // namespace

c10::DeviceAllocator& allocator() {
  static auto* const one = new Allocator;
  return *one;
}

at::Tensor new_tensor(c10::DeviceIndex device, at::IntArrayRef sizes, at::IntArrayRef strides,
                      at::ScalarType dtype) {
  const c10::DeviceGuard guard(c10::Device(kSim, device));
  return at::detail::empty_strided_generic(
      sizes, strides, &allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype);
}

void set_limit(int device, size_t bytes) {
  const std::lock_guard lock(state().mutex);
  state().devices.at(at_index(device)).memory.set_limit(std::min(bytes, state().options.bytes));
}

std::vector<size_t> memory_limits() {
  const std::lock_guard lock(state().mutex);
  std::vector<size_t> limits;
  for (const OneDevice& device : state().devices) limits.push_back(device.memory.limit());
  return limits;
}

size_t live_bytes(int device) {
  const std::lock_guard lock(state().mutex);
  return state().devices.at(at_index(device)).memory.live();
}

int64_t num_allocations() {
  const std::lock_guard lock(state().mutex);
  return state().allocations;
}

void fail_allocation(int64_t number) {
  const std::lock_guard lock(state().mutex);
  state().failing = number;
}

}  // namespace tanren::sim
