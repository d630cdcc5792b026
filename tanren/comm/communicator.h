// Communicator: sums and copies over the ranks of a run, and messages between two of them, on any
// engine (in one process, Gloo, NCCL). Invariant: every rank starts the same sums and copies in the
// same order. When a wait returns, all ranks hold bitwise the same numbers (after a scattered sum,
// each holds its part). One per rank, used by one thread at a time; waits may come from another
// thread. If an operation cannot complete, every waiting rank throws CommError: no rank hangs.
// Owned by Parts; users may bring their own.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <string_view>

namespace tanren {

class Communicator {
 public:
  // An operation under way. Its tensors must not be touched before wait() has returned.
  class Pending {
   public:
    virtual ~Pending() = default;
    // On a device the current stream waits, not the host. CommError.
    virtual void wait() = 0;
    // The host waits until the result is there, at most for parallel.timeout. CommError.
    virtual void wait_on_host() { wait(); }
  };
  using Work = std::unique_ptr<Pending>;

  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual std::string_view name() const = 0;  // single, threads, gloo, nccl
  // The device whose tensors this rank's operations take.
  virtual at::Device device() const { return at::kCPU; }
  // The device to which a tensor on `own` must be moved for an operation: `own` if the engine takes
  // tensors on any device.
  virtual at::Device device_for(at::Device own) const {
    (void)own;
    return device();
  }

  // tensor: dense, any shape, of the same number of elements and dtype on every rank. It becomes
  // the sum over ranks.
  virtual Work start_sum(const at::Tensor& tensor) = 0;
  // whole: world_size equal parts in a row, contiguous. `part` becomes the sum over ranks of the
  // rank-th part; `whole` is undefined afterwards.
  virtual Work start_sum_scatter(const at::Tensor& part, const at::Tensor& whole) = 0;
  // `whole` becomes the parts of all ranks in a row, contiguous. `part` may be the rank-th part of
  // `whole`.
  virtual Work start_gather(const at::Tensor& whole, const at::Tensor& part) = 0;
  // `tensor` becomes the tensor of rank `root`.
  virtual Work start_broadcast(const at::Tensor& tensor, int root) = 0;

  // Messages between two ranks. The n-th message that this rank sends to `rank` is the n-th that
  // `rank` receives from this rank. `tensor`: dense, contiguous, any shape, of the same number of
  // elements and dtype on both. Any number may be under way in both directions; each must be waited
  // for, unless the run ends. `what` names the message in errors ("the gradient of microbatch 3").
  // Start the next receive from a rank only after the wait for the current one, because over NCCL a
  // send goes as one group with all receives started from the same rank, and waits for them.
  // CommError for a tensor that cannot be sent, for this rank itself, and for an engine without
  // messages.
  Work start_send(const at::Tensor& tensor, int rank, const std::string& what = "");
  // The same, for a message that is followed by another send to the rank. Over NCCL both go as one
  // group.
  Work post_send(const at::Tensor& tensor, int rank, const std::string& what = "");
  Work start_receive(const at::Tensor& tensor, int rank, const std::string& what = "");

  // Every rank calls it. The ranks of one colour form a new communicator, a part, with the same
  // order of ranks and the same timeout. A cancel or a lost rank ends the waits of this
  // communicator and of all its parts. Destroy a part before the communicator that it was made
  // from. with_parts.h also does what is needed after an exception. CommError for an engine that
  // cannot be split.
  virtual std::unique_ptr<Communicator> split(int colour);

  // Ends every wait, now and later, on all ranks with the CommError "[comm] rank <this>: <why>", or
  // with `why` unchanged if it already names a rank. The first cause stays. Thread-safe.
  virtual void cancel(const std::string& why) = 0;
  // CommError if a cancel on any rank or a lost rank has ended the run. For callers that wait for
  // no operation. Costs no communication.
  virtual void check() const {}
  // The progress of this rank ("step 120"), which the others report if it is lost. May be called
  // every step.
  virtual void set_state(const std::string& state) { (void)state; }
  // Announces that this rank has finished, so that its end is no failure. The destructor does this,
  // too, unless it runs because of an exception.
  virtual void leave() {}

  void sum(const at::Tensor& tensor) { start_sum(tensor)->wait(); }
  void gather(const at::Tensor& whole, const at::Tensor& part) {
    start_gather(whole, part)->wait();
  }
  void broadcast(const at::Tensor& tensor, int root) { start_broadcast(tensor, root)->wait(); }

 private:
  // start_send, post_send and start_receive call these after their checks.
  virtual Work begin_send(const at::Tensor& tensor, int rank, const std::string& what);
  virtual Work begin_post(const at::Tensor& tensor, int rank, const std::string& what) {
    return begin_send(tensor, rank, what);
  }
  virtual Work begin_receive(const at::Tensor& tensor, int rank, const std::string& what);
};

// For a run of one rank: every operation is complete at once.
std::unique_ptr<Communicator> single_communicator();

}  // namespace tanren
