#include "tanren/comm/thread_wires.h"

#include "tanren/base/error.h"
#include "tanren/base/seconds.h"
#include "tanren/base/text.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace tanren {

namespace {

// One rank's side of a message.
struct MessageEnd {
  at::Tensor tensor;  // the caller's without its graph; undefined once it is not used any more
  at::Device device;
  int64_t bytes;
  std::string what;
  std::optional<c10::Event> given;  // device: the work that its stream had before
};

// An event at the end of the device's current stream; none on the CPU.
std::optional<c10::Event> marked(const at::Device& device) {
  if (device.is_cpu()) return std::nullopt;
  c10::Event event(device.type());
  event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return event;
}

// While it lives, work on `device` goes to a separate stream, which first waits for the `given`
// events of both ends.
class CopyStreamScope {
 public:
  CopyStreamScope(const at::Device& device, const MessageEnd& one, const MessageEnd& other) {
    if (device.is_cpu()) return;
    const c10::Stream stream =
        c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
    for (const MessageEnd* end : {&one, &other}) {
      if (end->given && end->given->device_type() == device.type()) end->given->block(stream);
    }
    guard_.reset_stream(stream);
  }

 private:
  c10::OptionalStreamGuard guard_;
};

}  // namespace

struct ThreadWires::Message {
  // Each end is written before the other side finds the message.
  std::optional<MessageEnd> sent, received;
  bool is_done = false;  // guarded by the line's mutex, like the members below until it is true
  std::vector<c10::Event> copied;
  ThreadLine::Clock::time_point arrives{};
};

std::shared_ptr<ThreadWires::Message> ThreadWires::start(const Wire& wire, bool sends,
                                                         const at::Tensor& tensor,
                                                         const std::string& what) {
  MessageEnd end{tensor.detach(), tensor.device(), static_cast<int64_t>(tensor.nbytes()), what,
                 marked(tensor.device())};
  std::shared_ptr<Message> message;
  {
    const std::lock_guard lock(line_.mutex);
    if (!line_.aborted.empty()) throw CommError(line_.aborted);
    auto& queue = waiting_[wire];
    const bool is_first =
        queue.empty() || (sends ? queue.front()->sent : queue.front()->received).has_value();
    if (is_first) {
      message = queue.emplace_back(std::make_shared<Message>());
    } else {
      message = std::move(queue.front());
      queue.pop_front();
    }
    (sends ? message->sent : message->received) = std::move(end);
    if (is_first) return message;
  }
  meet(message, wire);
  return message;
}

void ThreadWires::meet(const std::shared_ptr<Message>& message, const Wire& wire) {
  MessageEnd &sent = *message->sent, &received = *message->received;
  // References, not copies: both ends release their tensors below. No copy may still hold the
  // tensors when the ranks are notified that the message has arrived.
  const at::Tensor &from = sent.tensor, &to = received.tensor;
  std::string why;
  if (from.numel() != to.numel() || from.scalar_type() != to.scalar_type()) {
    const auto named = [](const std::string& what) {
      return what.empty() ? std::string("a message") : what;
    };
    why = fmt::format(
        "[comm] rank {} sends {} of {} {} elements to rank {}, which receives {} of {} {} elements",
        wire.from, named(sent.what), from.numel(), c10::toString(from.scalar_type()), wire.to,
        named(received.what), to.numel(), c10::toString(to.scalar_type()));
  } else {
    try {
      const at::NoGradGuard no_grad;
      // Between two devices, the copy runs on the sender's stream and the receiver's stream waits
      // for it.
      const CopyStreamScope to_stream(to.device(), sent, received);
      std::optional<CopyStreamScope> from_stream;
      if (from.device() != to.device()) from_stream.emplace(from.device(), sent, received);
      to.view(-1).copy_(from.view(-1), /*non_blocking=*/!from.is_cpu() && !to.is_cpu());
      for (const at::Device& device : {from.device(), to.device()}) {
        if (auto event = marked(device)) message->copied.push_back(std::move(*event));
      }
    } catch (const std::exception& error) {
      why = fmt::format("[comm] a message from rank {} to rank {}: {}", wire.from, wire.to,
                        first_line(error.what()));
    }
  }
  if (!why.empty()) {
    line_.cancel(why);
    throw CommError(why);
  }
  // A copy on devices may still run: each end keeps its tensor until its stream waits for the copy.
  if (message->copied.empty()) sent.tensor = received.tensor = at::Tensor();
  const std::lock_guard lock(line_.mutex);
  message->arrives = line_.carry(sent.bytes);
  message->is_done = true;
  line_.changed.notify_all();
}

void ThreadWires::wait(Message& message, const Wire& wire, bool sends, bool on_host) {
  MessageEnd& own = *(sends ? message.sent : message.received);
  const int rank = sends ? wire.from : wire.to;
  const Awaited awaited = awaited_message(sends ? wire.to : wire.from, !sends, own.what, own.bytes);
  {
    std::unique_lock lock(line_.mutex);
    const ThreadWaitScope waiting(line_, lock, rank,
                                  {[&] { return awaited.what; }, [&] { return awaited.rank; }});
    const bool has_come = line_.changed.wait_for(
        lock, line_.timeout, [&] { return message.is_done || !line_.aborted.empty(); });
    if (!has_come) give_up(rank, awaited);
    if (!message.is_done) throw CommError(told_while_waiting(line_.aborted, rank, awaited));
  }
  std::this_thread::sleep_until(message.arrives);
  for (const c10::Event& event : message.copied) {
    if (on_host) event.synchronize();
    if (own.device.type() != event.device_type()) continue;
    event.block(c10::impl::VirtualGuardImpl(own.device.type()).getStream(own.device));
  }
  if (!message.copied.empty()) own.tensor = at::Tensor();
}

void ThreadWires::give_up(int rank, const Awaited& awaited) {
  const Waits waits = line_.all_waits();
  const int holder = waits.holder(awaited.rank);
  line_.aborted =
      fmt::format("[comm] rank {} {}: {}", holder,
                  holding_up(rank, in_seconds(line_.timeout), awaited), waits.of_holder(holder));
  line_.changed.notify_all();
  throw CommError(line_.aborted);
}

}  // namespace tanren
