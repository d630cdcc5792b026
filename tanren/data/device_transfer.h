// DeviceTransfer: copies batches from loader threads to an accelerator, through pinned memory and
// on its own stream, so that a copy runs while the device works on the batch before it. On the CPU
// nothing happens. Any thread may call send(); the thread that uses the batch calls receive().
#pragma once

#include "tanren/base/batch.h"

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>

namespace tanren {

class DeviceTransfer {
 public:
  // A batch whose copy may still be running.
  struct Sent {
    Batch batch;
    std::shared_ptr<c10::Event> arrival;  // null: nothing to wait for
  };

  explicit DeviceTransfer(at::Device device);

  // Starts the copy and returns at once; ids stay on the CPU. If the device has no memory for the
  // batch, it stays on the CPU.
  Sent send(Batch batch) const;
  // Makes the calling thread's current stream wait for the batch; the thread itself does not wait.
  Batch receive(Sent sent) const;

 private:
  Sent start(Batch batch) const;

  at::Device device_;
  std::optional<c10::Stream> stream_;  // set for accelerators only
};

}  // namespace tanren
