#include "tanren/comm/c10d_communicator.h"

#include "tanren/base/error.h"
#include "tanren/base/seconds.h"
#include "tanren/base/text.h"
#include "tanren/comm/awaited.h"
#include "tanren/comm/c10d_line.h"
#include "tanren/comm/c10d_messages.h"
#include "tanren/comm/exchange.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

namespace tanren {

namespace {

// A broken connection is only a consequence. Its cause arrives through the control channel a little
// later.
constexpr std::chrono::seconds kCauseTimeout{2};
// If a connection breaks while a payload is half sent, Gloo forgets the wait for the payload, which
// would then last for its whole timeout. A wait therefore ends this long after the failure is
// known.
constexpr std::chrono::milliseconds kAfterAbort{500};
constexpr std::chrono::milliseconds kWaitSlice{250};
// The pause between two checks whether a device has finished an operation.
constexpr std::chrono::microseconds kBetweenLooks{20};

// The engine's error without the location in Gloo's sources and Gloo's advice.
std::string engine_text(const std::string& error) {
  std::string text = first_line(error);
  const size_t place = text.find(".cc:"), end = text.find("] ");
  if (text.rfind("[/", 0) == 0 && place < end && end != std::string::npos) text.erase(0, end + 2);
  return text.substr(0, text.find(". This is typically caused"));
}

using Clock = std::chrono::steady_clock;

class C10dCommunicator final : public Communicator {
 public:
  // `part.ranks`: the ranks in the world, indexed by rank in this communicator; empty: all ranks.
  C10dCommunicator(C10dBackend backend, C10dOptions options, std::shared_ptr<C10dLine> line,
                   ControlPart part)
      : backend_(std::move(backend.backend)),
        is_busy_(std::move(backend.is_busy)),
        options_(std::move(options)),
        line_(std::move(line)),
        part_(std::move(part)),
        messages_(std::make_shared<C10dMessages>(*backend_, options_.in_groups)),
        place_(line_->add([backend = backend_, messages = messages_] {
          messages->end();
          backend->abort();
        })) {}
  ~C10dCommunicator() override {
    if (!is_part()) line_->close(std::uncaught_exceptions() > exceptions_before_);
    line_->remove(place_);
    leave_what_hangs();
  }
  C10dCommunicator(const C10dCommunicator&) = delete;
  C10dCommunicator& operator=(const C10dCommunicator&) = delete;

  int rank() const override { return backend_->getRank(); }
  int world_size() const override { return backend_->getSize(); }
  std::string_view name() const override { return options_.name; }
  at::Device device() const override { return options_.device; }

  Work start_sum(const at::Tensor& tensor) override {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::SUM;
    return started("sum", [&] { return backend_->allreduce(tensors, options); }, {tensor});
  }
  Work start_sum_scatter(const at::Tensor& part, const at::Tensor& whole) override {
    at::Tensor to = part.view(-1), from = whole.view(-1);
    return started("scattered sum", [&] { return backend_->_reduce_scatter_base(to, from); },
                   {part, whole});
  }
  Work start_gather(const at::Tensor& whole, const at::Tensor& part) override {
    at::Tensor to = whole.view(-1),
               from = part.reshape(-1);  // flat, because Gloo compares shapes
    if (!options_.in_place && part.is_alias_of(whole)) from = from.clone();
    return started("gathering", [&] { return backend_->_allgather_base(to, from); }, {whole, from});
  }
  Work start_broadcast(const at::Tensor& tensor, int root) override {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return started("broadcast", [&] { return backend_->broadcast(tensors, options); }, {tensor});
  }

  std::unique_ptr<Communicator> split(int colour) override;

  void cancel(const std::string& why) override { line_->cancel(why); }
  void check() const override { line_->check(); }
  void set_state(const std::string& state) override {
    if (control() != nullptr) control()->set_state(state);
  }
  void leave() override {
    if (control() != nullptr && !is_part()) control()->leave();
  }

 private:
  struct Operation {
    const char* what;
    int64_t number;             // from 1 on; 0: not counted
    Clock::time_point started;  // of a message: when its wait began
    Awaited awaited = {};       // of a message
  };

  bool is_part() const { return !part_.ranks.empty(); }
  ControlChannel* control() const { return line_->control(); }
  ControlMailbox* mailbox() const { return control() == nullptr ? nullptr : control()->mailbox(); }
  // Describes a wait for a collective operation.
  Awaited awaited_in(const Operation& operation) const {
    const std::string ranks =
        is_part() ? text_of_ranks(part_.ranks) : fmt::format("all {} ranks", world_size());
    return {-1, fmt::format("a {} over {}", operation.what, ranks), part_.index, operation.number};
  }
  int rank_in_world(int rank) const {
    return is_part() ? part_.ranks[static_cast<size_t>(rank)] : rank;
  }

  class C10dPending final : public Pending {
   public:
    C10dPending(C10dCommunicator& owner, Operation operation, c10::intrusive_ptr<c10d::Work> work,
                std::vector<at::Tensor> tensors)
        : owner_(owner),
          operation_(operation),
          work_(std::move(work)),
          tensors_(std::move(tensors)) {}
    void wait() override { wait(false); }
    void wait_on_host() override { wait(true); }

   private:
    void wait(bool on_host) {
      const ControlChannel::AwaitScope awaiting(owner_.mailbox(), owner_.awaited_in(operation_));
      owner_.guarded(operation_, [&] {
        owner_.wait_for(*work_);
        if (on_host) owner_.wait_for_end(operation_, *work_);
      });
    }

    C10dCommunicator& owner_;
    const Operation operation_;
    c10::intrusive_ptr<c10d::Work> work_;
    std::vector<at::Tensor> tensors_;  // alive until it is done
  };

  class MessagePending final : public Pending {
   public:
    MessagePending(C10dCommunicator& owner, Operation operation,
                   std::shared_ptr<C10dMessage> message)
        : owner_(owner), operation_(std::move(operation)), message_(std::move(message)) {}
    void wait() override { wait(false); }
    void wait_on_host() override { wait(true); }

   private:
    void wait(bool on_host) {
      if (has_waited_ && (!on_host || owner_.options_.device.is_cpu())) return;
      operation_.started = Clock::now();
      owner_.wait_for_message(operation_, *message_, on_host);
      has_waited_ = true;
    }

    C10dCommunicator& owner_;
    Operation operation_;
    std::shared_ptr<C10dMessage> message_;
    bool has_waited_ = false;
  };

  Work begin_send(const at::Tensor& tensor, int rank, const std::string& what) override {
    return started_message(awaited_message(rank_in_world(rank), false, what, bytes_of(tensor)),
                           [&] { return messages_->send(tensor, rank); });
  }
  Work begin_post(const at::Tensor& tensor, int rank, const std::string& what) override {
    return started_message(awaited_message(rank_in_world(rank), false, what, bytes_of(tensor)),
                           [&] { return messages_->post(tensor, rank); });
  }
  Work begin_receive(const at::Tensor& tensor, int rank, const std::string& what) override {
    return started_message(awaited_message(rank_in_world(rank), true, what, bytes_of(tensor)),
                           [&] { return messages_->receive(tensor, rank); });
  }
  static int64_t bytes_of(const at::Tensor& tensor) {
    return static_cast<int64_t>(tensor.nbytes());
  }

  template <class F>
  Work started_message(Awaited awaited, const F& start) {
    check();
    Operation operation{"message", 0, Clock::now(), std::move(awaited)};
    std::shared_ptr<C10dMessage> message;
    guarded(operation, [&] { message = start(); });
    return std::make_unique<MessagePending>(*this, std::move(operation), std::move(message));
  }

  void wait_for_message(const Operation& operation, C10dMessage& message, bool on_host) {
    const ControlChannel::AwaitScope awaiting(mailbox(), operation.awaited);
    guarded(operation, [&] {
      check();
      messages_->launch(message);
      // Without a time limit, a device's engine makes its stream wait, not the host.
      const bool waits_here = options_.device.is_cpu();
      if (!messages_->wait(message, waits_here ? options_.timeout : std::chrono::milliseconds(0))) {
        throw CommError("its wait was ended");
      }
      if (on_host) wait_for_end(operation, *message.work);
    });
  }

  template <class F>
  Work started(const char* what, const F& start, std::vector<at::Tensor> tensors) {
    check();
    const int64_t number = control() == nullptr ? 0 : control()->count_operation(part_.index);
    const Operation operation{what, number, Clock::now()};
    c10::intrusive_ptr<c10d::Work> work;
    guarded(operation, [&] {
      const at::NoGradGuard no_grad;
      work = start();
    });
    return std::make_unique<C10dPending>(*this, operation, std::move(work), std::move(tensors));
  }

  template <class F>
  void guarded(const Operation& operation, const F& work) {
    try {
      work();
    } catch (const std::exception& error) {
      throw CommError(told_while_waiting(why_failed(operation, error.what()), line_->rank(),
                                         operation.awaited));
    }
  }

  void wait_for(c10d::Work& work) const {
    if (!is_busy_) {
      work.wait();
      return;
    }
    while (!work.isCompleted()) {
      line_->check_after(kAfterAbort);
      try {
        work.wait(kWaitSlice);
        return;
      } catch (const std::exception&) {  // its error or the slice's end; it may have ended
        continue;
      }
    }
    work.wait();
  }
  // A device's engine makes only its stream wait. A wait of the host for a lost rank would never
  // end, so the host polls.
  void wait_for_end(const Operation& operation, c10d::Work& work) const {
    if (options_.device.is_cpu()) return;  // wait() waited for it
    while (!work.isCompleted()) {
      line_->check_after(kAfterAbort);
      if (has_ended(operation)) throw CommError("its time is over");
      std::this_thread::sleep_for(kBetweenLooks);
    }
    if (const std::exception_ptr error = work.exception()) std::rethrow_exception(error);
    check();  // an abort also ends operations: this one and those before then hold any numbers
  }

  // The backend's destructor waits for operations under way. If its abort leaves one under way, the
  // backend stays until the process ends.
  void leave_what_hangs() {
    if (!is_busy_ || !is_busy_()) return;
    backend_->abort();
    const auto end = Clock::now() + kAfterAbort;
    while (is_busy_() && Clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (is_busy_()) (void)backend_.release();
  }

  // The known failure, if there is one. Otherwise the ranks that keep the others waiting, or this
  // rank's own error; either is then reported to all ranks, because an operation that failed on one
  // rank cannot complete on another.
  std::string why_failed(const Operation& operation, const std::string& error) {
    if (std::string why = line_->why(); !why.empty()) return why;
    std::string known;
    if (control() != nullptr) {
      // The cause of a broken connection is reported a little later. After a timeout, no rank knows
      // more.
      const bool is_late = has_ended(operation);
      if (!is_late) control()->failure(kCauseTimeout);
      const std::string held_up = held_up_by(operation, is_late);
      if (const auto failure = control()->failure()) {
        line_->set_why(*failure);
        return line_->why();
      }
      if (is_late && !held_up.empty()) {
        cancel("[comm] " + held_up);
        return line_->why();
      }
      known = "; " + (held_up.empty() ? control()->standing() : held_up);
    }
    const std::string why =
        fmt::format("[comm] rank {}, a {} over {} and {} ranks: {}{}", line_->rank(),
                    operation.what, options_.name, world_size(), engine_text(error), known);
    cancel(told_while_waiting(why, line_->rank(), operation.awaited));
    return line_->why();
  }

  // Whether the operation's whole timeout is over; the engine's clock began a little later than
  // ours.
  bool has_ended(const Operation& operation) const {
    return options_.timeout.count() > 0 && Clock::now() - operation.started >= options_.timeout;
  }

  // For a broken connection, only ranks that do not answer are named: a rank that is late may still
  // come.
  std::string held_up_by(const Operation& operation, bool is_late) const {
    if (!is_late) return control()->held_up_by(0, "is missing");
    const double seconds = in_seconds(options_.timeout);
    if (operation.awaited.rank >= 0) {
      return control()->held_up_by_message(operation.awaited.rank,
                                           holding_up(line_->rank(), seconds, operation.awaited));
    }
    return control()->held_up_by(
        operation.number,
        fmt::format("did not come to a {} over {} and {} ranks within {} s (parallel.timeout)",
                    operation.what, options_.name, world_size(), seconds),
        part_);
  }

  const int exceptions_before_ = std::uncaught_exceptions();
  c10::intrusive_ptr<c10d::Backend> backend_;
  const std::function<bool()> is_busy_;
  const C10dOptions options_;
  const std::shared_ptr<C10dLine> line_;
  const ControlPart part_;
  const std::shared_ptr<C10dMessages> messages_;  // also used by place_
  const C10dLine::Place place_;
};

std::unique_ptr<Communicator> C10dCommunicator::split(int colour) {
  if (!options_.split) {
    throw CommError(fmt::format(
        "[comm] rank {}: the engine {} cannot be split into parts; take gloo, nccl or threads, or "
        "give C10dOptions::split",
        line_->rank(), options_.name));
  }
  // A rank may have been in more parts than another. All take the first index that is free on all.
  const at::Tensor told = gather_numbers(*this, {colour, static_cast<int64_t>(line_->next_part())});
  const auto row = told.accessor<int64_t, 2>();
  ControlPart part;
  C10dPart wanted{};
  for (int other = 0; other < world_size(); ++other) {
    part.index = std::max(part.index, static_cast<size_t>(row[other][1]));
    if (row[other][0] != colour) continue;
    if (other == rank()) wanted.rank = static_cast<int>(part.ranks.size());
    part.ranks.push_back(rank_in_world(other));
  }
  line_->take_part(part.index);
  wanted.size = static_cast<int>(part.ranks.size());
  wanted.name = fmt::format("part-{}-{}", part.index, part.ranks.front());
  wanted.control = control();
  wanted.ranks = part.ranks;
  if (control() != nullptr) control()->join(part);
  try {
    return std::make_unique<C10dCommunicator>(options_.split(wanted), options_, line_,
                                              std::move(part));
  } catch (const CommError& error) {
    cancel(error.what());
    throw;
  }
}

}  // namespace

std::unique_ptr<Communicator> c10d_communicator(c10::intrusive_ptr<c10d::Backend> backend,
                                                C10dOptions options,
                                                std::unique_ptr<ControlChannel> control) {
  auto line = std::make_shared<C10dLine>(std::move(control), backend->getRank());
  C10dBackend engine{std::move(backend), options.is_busy};
  return std::make_unique<C10dCommunicator>(std::move(engine), std::move(options), std::move(line),
                                            ControlPart());
}

}  // namespace tanren
