// What must succeed on an accelerator succeeds although its memory has run out. The CPU's allocator
// keeps a reserve for such allocations and tries them twice; a device's allocator belongs to torch,
// so here the reserve is a tensor, and what is tried twice is the operator. Operators allocate
// before they write, so that a second run computes the same. Called by train/ around updates,
// evaluations and checkpoints, on the step's thread.
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
  // Takes the memory, if it does not hold it already and the device has it.
  void fill();
  // Gives the memory and the allocator's cache back.
  void release();

 private:
  c10::Device device_;
  int64_t bytes_;
  at::Tensor held_;
};

// While it lives, an operator of this thread that runs out of the device's memory is run once more,
// after the reserve was given back; outside of attempt() (attempt.h), which has its own way. A
// second failure passes through. Fills the reserve when it begins. Does nothing on the CPU.
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
