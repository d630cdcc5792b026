// DeviceTransfer: batches from loader threads to an accelerator, beside the step: through pinned
// memory, on a stream of its own, so that a copy runs while the device works on the batch before it.
// On the CPU nothing happens. send() is for any thread, receive() for the one that uses the batch.
#pragma once

#include "tanren/base/batch.h"

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>

namespace tanren {

class DeviceTransfer {
 public:
  // A batch on its way.
  struct Sent {
    Batch batch;
    std::shared_ptr<c10::Event> arrival;  // null: it is there
  };

  explicit DeviceTransfer(at::Device device);

  // Starts the copy and returns at once; ids stay on the CPU.
  Sent send(Batch batch) const;
  // Makes the calling thread's current stream wait for the batch; the thread itself goes on.
  Batch receive(Sent sent) const;

 private:
  at::Device device_;
  std::optional<c10::Stream> stream_;  // set for accelerators alone
};

}  // namespace tanren
