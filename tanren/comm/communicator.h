// Communicator: sums and copies over the ranks of a run, on whichever engine carries them (in one
// process, Gloo, NCCL). Invariant: every rank starts the same operations in the same order, and
// when a wait returns, each rank's tensor holds bitwise the same numbers as every other's. One per
// rank, used by one thread at a time; waits may come from another thread. What cannot be completed
// throws CommError on every rank that waits: nobody hangs. Owned by Parts; users may bring their
// own.
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
    virtual void wait() = 0;  // CommError
  };
  using Work = std::unique_ptr<Pending>;

  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual std::string_view name() const = 0;  // single, threads, gloo, nccl
  // The device whose tensors this rank's operations take.
  virtual at::Device device() const { return at::kCPU; }

  // tensor: dense, any shape, of the same number of elements and dtype on every rank. It becomes
  // the sum over ranks.
  virtual Work start_sum(const at::Tensor& tensor) = 0;
  // whole: world_size equal parts in a row, contiguous. `part` becomes the sum over ranks of the
  // rank-th part; `whole` is undefined afterwards.
  virtual Work start_sum_scatter(const at::Tensor& part, const at::Tensor& whole) = 0;
  // The parts of all ranks in a row, contiguous. `part` may be the rank-th part of `whole`.
  virtual Work start_gather(const at::Tensor& whole, const at::Tensor& part) = 0;
  // tensor becomes that of the rank `root`.
  virtual Work start_broadcast(const at::Tensor& tensor, int root) = 0;

  // Every wait, now and later, of this rank and of the others, ends with the CommError "[comm] rank
  // <this>: <why>", or why as it is where it says a rank already. The first stays. Thread-safe.
  virtual void cancel(const std::string& why) = 0;
  // CommError where a cancel, here or on another rank, or a lost rank has ended the run: for those
  // who wait for nothing. Costs no communication.
  virtual void check() const {}
  // Where this rank is ("step 120"), which the others say if it is lost. May come every step.
  virtual void set_state(const std::string& state) { (void)state; }
  // The goodbye of a rank that has finished: its end is no failure. The destructor says it too,
  // unless an exception destroys.
  virtual void leave() {}

  void sum(const at::Tensor& tensor) { start_sum(tensor)->wait(); }
  void gather(const at::Tensor& whole, const at::Tensor& part) {
    start_gather(whole, part)->wait();
  }
  void broadcast(const at::Tensor& tensor, int root) { start_broadcast(tensor, root)->wait(); }
};

// A run of one rank: all of it is done already.
std::unique_ptr<Communicator> single_communicator();

}  // namespace tanren
