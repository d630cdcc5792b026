#include "tanren/comm/c10d_communicator.h"

#include "tanren/base/error.h"
#include "tanren/base/seconds.h"
#include "tanren/base/text.h"
#include "tanren/comm/cause.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace tanren {

namespace {

// A broken connection is only an echo; its cause arrives through the control channel a little
// later.
constexpr std::chrono::seconds kCauseTimeout{2};
// If a connection breaks while a payload is half sent, Gloo forgets the wait for it, which would
// then last for its whole timeout. So no wait lasts much longer than the connections.
constexpr std::chrono::milliseconds kAfterAbort{500};
constexpr std::chrono::milliseconds kWaitSlice{250};
// Between two looks whether a device has finished an operation.
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
  C10dCommunicator(c10::intrusive_ptr<c10d::Backend> backend, C10dOptions options,
                   std::unique_ptr<ControlChannel> control)
      : backend_(std::move(backend)), options_(std::move(options)), control_(std::move(control)) {
    if (control_ != nullptr) control_->on_failure([this](const std::string& why) { end(why); });
  }
  ~C10dCommunicator() override {
    if (control_ != nullptr) {
      control_->on_failure(nullptr);
      if (std::uncaught_exceptions() > exceptions_before_) {
        control_->fail("it ends with an error of its own, which its own last lines say");
      } else if (!control_->failure()) {
        control_->leave();
      }
      control_.reset();
    }
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

  void cancel(const std::string& why) override {
    set_why(cause_text(rank(), why));
    if (control_ != nullptr) control_->fail(why);  // first: the others' connections break next
    backend_->abort();
  }
  void check() const override {
    const std::lock_guard lock(mutex_);
    if (!why_.empty()) throw CommError(why_);
  }
  void set_state(const std::string& state) override {
    if (control_ != nullptr) control_->set_state(state);
  }
  void leave() override {
    if (control_ != nullptr) control_->leave();
  }

 private:
  struct Operation {
    const char* what;
    int64_t number;  // from 1 on; 0: not counted
    Clock::time_point started;
  };

  class C10dPending final : public Pending {
   public:
    C10dPending(C10dCommunicator& owner, Operation operation, c10::intrusive_ptr<c10d::Work> work,
                std::vector<at::Tensor> tensors)
        : owner_(owner),
          operation_(operation),
          work_(std::move(work)),
          tensors_(std::move(tensors)) {}
    void wait() override {
      owner_.guarded(operation_, [&] { owner_.wait_for(*work_); });
    }
    void wait_on_host() override {
      wait();
      owner_.guarded(operation_, [&] { owner_.wait_for_end(operation_, *work_); });
    }

   private:
    C10dCommunicator& owner_;
    const Operation operation_;
    c10::intrusive_ptr<c10d::Work> work_;
    std::vector<at::Tensor> tensors_;  // alive until it is done
  };

  template <class F>
  Work started(const char* what, const F& start, std::vector<at::Tensor> tensors) {
    check();
    const int64_t number = control_ == nullptr ? 0 : control_->count_operation();
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
      throw CommError(why_failed(operation, error.what()));
    }
  }

  void wait_for(c10d::Work& work) const {
    if (!options_.is_busy) {
      work.wait();
      return;
    }
    while (!work.isCompleted()) {
      give_up_after_abort();
      try {
        work.wait(kWaitSlice);
        return;
      } catch (const std::exception&) {  // its own, or the slice is over, and it may end just now
        continue;
      }
    }
    work.wait();
  }
  // A device's engine makes its stream wait, and would let the host wait for a lost rank for ever.
  void wait_for_end(const Operation& operation, c10d::Work& work) const {
    if (options_.device.is_cpu()) return;  // wait() waited for it
    while (!work.isCompleted()) {
      give_up_after_abort();
      if (has_ended(operation)) throw CommError("its time is over");
      std::this_thread::sleep_for(kBetweenLooks);
    }
    if (const std::exception_ptr error = work.exception()) std::rethrow_exception(error);
    check();  // an abort ends operations, too, and leaves any numbers in this one and those before
  }
  void give_up_after_abort() const {
    const std::lock_guard lock(mutex_);
    if (!why_.empty() && Clock::now() - ended_ > kAfterAbort) throw CommError(why_);
  }

  // The backend's destructor waits for operations under way. If its abort leaves one under way, the
  // backend stays until the process ends.
  void leave_what_hangs() {
    if (!options_.is_busy || !options_.is_busy()) return;
    backend_->abort();
    const auto end = Clock::now() + kAfterAbort;
    while (options_.is_busy() && Clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (options_.is_busy()) (void)backend_.release();
  }

  // The known failure, if there is one. Otherwise the ranks that keep the others waiting, or this
  // rank's own error; either is then reported to all ranks, because an operation that failed on one
  // rank cannot complete on another.
  std::string why_failed(const Operation& operation, const std::string& error) {
    if (std::string why = this->why(); !why.empty()) return why;
    std::string known;
    if (control_ != nullptr) {
      // The cause of a broken connection is reported a little later. After a timeout, no rank knows
      // more.
      const bool is_late = has_ended(operation);
      if (!is_late) control_->failure(kCauseTimeout);
      const std::string held_up = held_up_by(operation, is_late);
      if (const auto failure = control_->failure()) {
        set_why(*failure);
        return why();
      }
      if (is_late && !held_up.empty()) {
        cancel("[comm] " + held_up);
        return why();
      }
      known = "; " + (held_up.empty() ? control_->standing() : held_up);
    }
    cancel(fmt::format("[comm] rank {}, a {} over {} and {} ranks: {}{}", rank(), operation.what,
                       options_.name, world_size(), engine_text(error), known));
    return this->why();
  }

  // Whether the operation's whole timeout is over; the engine's clock began a little later than
  // ours.
  bool has_ended(const Operation& operation) const {
    return options_.timeout.count() > 0 && Clock::now() - operation.started >= options_.timeout;
  }

  // For a broken connection, only ranks that do not answer are named: a rank that is late may still
  // come.
  std::string held_up_by(const Operation& operation, bool is_late) const {
    if (!is_late) return control_->held_up_by(0, "is missing");
    const double seconds = in_seconds(options_.timeout);
    return control_->held_up_by(operation.number,
                                fmt::format("did not come to a {} over {} and {} ranks within {} s "
                                            "(parallel.timeout)",
                                            operation.what, options_.name, world_size(), seconds));
  }

  // Runs on the thread of the control channel.
  void end(const std::string& why) {
    set_why(why);
    backend_->abort();
  }

  std::string why() const {
    const std::lock_guard lock(mutex_);
    return why_;
  }
  void set_why(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (!why_.empty()) return;
    why_ = why;
    ended_ = Clock::now();
  }

  const int exceptions_before_ = std::uncaught_exceptions();
  c10::intrusive_ptr<c10d::Backend> backend_;
  const C10dOptions options_;
  mutable std::mutex mutex_;
  std::string why_;          // guarded by mutex_; the first stays
  Clock::time_point ended_;  // guarded by mutex_; when why_ was set
  std::unique_ptr<ControlChannel> control_;
};

}  // namespace

std::unique_ptr<Communicator> c10d_communicator(c10::intrusive_ptr<c10d::Backend> backend,
                                                C10dOptions options,
                                                std::unique_ptr<ControlChannel> control) {
  return std::make_unique<C10dCommunicator>(std::move(backend), std::move(options),
                                            std::move(control));
}

}  // namespace tanren
