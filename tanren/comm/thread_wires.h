// ThreadWires: the messages between two ranks of a ThreadGroup. The rank that comes second copies
// the data. On devices the copy runs on separate streams, and each side's stream waits for it.
// Thread-safe. Called by thread_group.cpp.
#pragma once

#include "tanren/comm/awaited.h"
#include "tanren/comm/communicator.h"
#include "tanren/comm/thread_line.h"

#include <c10/core/Event.h>

#include <compare>
#include <deque>
#include <map>
#include <memory>
#include <string>

namespace tanren {

class ThreadWires {
 public:
  // The ranks are those of the whole group.
  struct Wire {
    int64_t part;  // messages of different parts never match
    int from, to;
    auto operator<=>(const Wire&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  struct Message;

  explicit ThreadWires(ThreadLine& line) : line_(line) {}

  // Starts the sending or the receiving side of a message. CommError.
  std::shared_ptr<Message> start(const Wire& wire, bool sends, const at::Tensor& tensor,
                                 const std::string& what);
  // CommError, also when the other side has not come within the timeout.
  void wait(Message& message, const Wire& wire, bool sends, bool on_host);

 private:
  void meet(const std::shared_ptr<Message>& message, const Wire& wire);
  [[noreturn]] void give_up(int rank, const Awaited& awaited);

  ThreadLine& line_;
  // Messages that wait for their other side; guarded by the line's mutex.
  std::map<Wire, std::deque<std::shared_ptr<Message>>> waiting_;
};

}  // namespace tanren
