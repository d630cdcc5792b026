#include "tanren/data/device_transfer.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace tanren {

DeviceTransfer::DeviceTransfer(at::Device device) : device_(device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl devices(device.type());
  stream_ = devices.getStreamFromGlobalPool(device);
}

DeviceTransfer::Sent DeviceTransfer::send(Batch batch) const {
  if (!stream_) return {std::move(batch), nullptr};
  try {
    return start(batch);
  } catch (const c10::OutOfMemoryError&) {  // then the step moves it, and recovers
    return {std::move(batch), nullptr};
  }
}

DeviceTransfer::Sent DeviceTransfer::start(Batch batch) const {
  const c10::StreamGuard guard(*stream_);
  Batch pinned;
  for (const auto& [name, field] : batch.fields) pinned.fields.set(name, field.pin_memory());
  pinned.ids = std::move(batch.ids);
  // The allocator of pinned memory keeps the source alive until the copy is done.
  Sent sent{pinned.to(device_), std::make_shared<c10::Event>(device_.type())};
  sent.arrival->record(*stream_);
  return sent;
}

Batch DeviceTransfer::receive(Sent sent) const {
  if (!sent.arrival) return std::move(sent.batch);
  const c10::impl::VirtualGuardImpl devices(device_.type());
  const c10::Stream current = devices.getStream(device_);
  sent.arrival->block(current);
  // The fields were made on the other stream: keep their memory from being reused before this
  // stream is done with them.
  for (const auto& [name, field] : sent.batch.fields) field.record_stream(current);
  return std::move(sent.batch);
}

}  // namespace tanren
