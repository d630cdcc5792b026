// Lets essential work on an accelerator succeed although its memory has run out. The CPU's
// allocator keeps a reserve for essential allocations and tries them twice. A device's allocator
// belongs to torch, so here the reserve is a tensor, and the whole operator is tried twice.
// Operators allocate before they write, so that a second run computes the same. Called by train/
// around updates, evaluations and checkpoints, on the step's thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <optional>

namespace tanren {

// Memory of an accelerator that is kept until an allocation that must succeed needs it. On the CPU,
// and with 0 bytes, it is empty.
class DeviceReserve {
 public:
  DeviceReserve(c10::Device device, int64_t bytes) : device_(device), bytes_(bytes) {}

  c10::Device device() const { return device_; }
  // Allocates the reserve if it is not allocated yet and the device has the memory.
  void fill();
  // Gives the memory and the allocator's cache back.
  void release();

 private:
  c10::Device device_;
  int64_t bytes_;
  at::Tensor held_;
};

// Within this scope, an operator of this thread that runs out of the device's memory is run once
// more, after the reserve is released. This does not apply inside attempt() (attempt.h), which
// handles shortages itself. A second failure passes through. The constructor fills the reserve.
// Does nothing on the CPU.
class DeviceRetryScope {
 public:
  explicit DeviceRetryScope(DeviceReserve& reserve);
  ~DeviceRetryScope();
  DeviceRetryScope(const DeviceRetryScope&) = delete;
  DeviceRetryScope& operator=(const DeviceRetryScope&) = delete;

 private:
  DeviceReserve* outer_;
  std::optional<c10::impl::IncludeDispatchKeyGuard> included_;
};

// While it lives, no operator of this thread is retried by a DeviceRetryScope around it.
class NoDeviceRetryScope {
 public:
  NoDeviceRetryScope();

 private:
  c10::impl::ExcludeDispatchKeyGuard excluded_;
};

}  // namespace tanren
