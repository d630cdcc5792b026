// ControlChannel: reports failures among the processes of a run. It is separate from their
// collectives, which would only time out. A star of TCP connections to rank 0, watched by one
// thread per process; a connection that ends without a goodbye is a lost rank. Invariant: the first
// failure has the same text on all ranks, except on a rank that failed itself at the same time.
// Thread-safe, torch-free. Called by the communicators of Gloo and NCCL.
#pragma once

#include "tanren/comm/control/mailbox.h"
#include "tanren/comm/sockets.h"

#include <memory>
#include <thread>

namespace tanren {

class ControlChannel : private ControlMailbox {
 public:
  using ControlMailbox::Options;

  // `socket`: rank 0's listener; on the others, a socket connected to it. Returns when all ranks
  // have connected. CommError with the names of the missing ranks, or with a failure reported
  // meanwhile.
  static std::unique_ptr<ControlChannel> open(Socket socket, const Options& options);
  // Unless leave() or fail() was called, the others learn that this rank is gone.
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  // The run's threads call these. mailbox.h describes each.
  using ControlMailbox::AwaitScope;
  using ControlMailbox::count_operation;
  using ControlMailbox::fail;
  using ControlMailbox::failure;
  using ControlMailbox::held_up_by;
  using ControlMailbox::held_up_by_message;
  using ControlMailbox::join;
  using ControlMailbox::leave;
  using ControlMailbox::on_failure;
  using ControlMailbox::set_state;
  using ControlMailbox::standing;
  ControlMailbox* mailbox() { return this; }  // for AwaitScope

 private:
  ControlChannel(Socket socket, const Options& given);

  std::thread thread_;
};

}  // namespace tanren
