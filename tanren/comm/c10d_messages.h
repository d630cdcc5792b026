// C10dMessages: messages between two ranks over a backend of c10d. Invariant: the n-th sent to a
// rank meets the n-th that it receives from here. Starts come from one thread, waits from any.
// Called by c10d_communicator.cpp.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace tanren {

struct C10dMessage {
  bool is_sent;  // else received
  int rank;      // the other, in the backend
  int tag;
  std::vector<at::Tensor> bytes;             // one, flat
  c10::intrusive_ptr<c10d::Work> work = {};  // null: posted, not given to the backend yet
};

class C10dMessages {
 public:
  // `in_groups`: the backend runs its operations one after the other, so that a receive would hold
  // back what follows. A receive then goes to it with the next send, as one group, or with the
  // first wait.
  C10dMessages(c10d::Backend& backend, bool in_groups);

  // Throw what the backend throws.
  std::shared_ptr<C10dMessage> send(const at::Tensor& tensor, int rank);
  std::shared_ptr<C10dMessage> receive(const at::Tensor& tensor, int rank);
  // Gives it to the backend, with all that is posted.
  void launch(const C10dMessage& message);
  // The host waits, once for each message, at most `timeout` (0: the backend's own). Throws what
  // the backend throws; returns whether it has arrived, not ended by end().
  bool wait(const C10dMessage& message, std::chrono::milliseconds timeout);
  // Ends every wait, now and later. Does not block.
  void end();

 private:
  std::shared_ptr<C10dMessage> post(bool is_sent, const at::Tensor& tensor, int rank);
  void launch_posted();

  c10d::Backend& backend_;
  const bool in_groups_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<int64_t> num_sent_, num_received_;  // by rank
  std::vector<std::shared_ptr<C10dMessage>> posted_;
  std::mutex waits_mutex_;
  // Guarded by waits_mutex_.
  std::multiset<c10d::Work*> waits_;
  bool is_over_ = false;
};

}  // namespace tanren
