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
  // back what follows. A receive then goes to it with the next send to the same rank, as one group,
  // or when it is waited for, with those before it from the same rank. Whoever waits for one of a
  // group waits for all of it.
  C10dMessages(c10d::Backend& backend, bool in_groups);

  // Throw what the backend throws.
  std::shared_ptr<C10dMessage> send(const at::Tensor& tensor, int rank);
  // A send that goes with the next one to this rank, or when it is waited for; without groups, at
  // once.
  std::shared_ptr<C10dMessage> post(const at::Tensor& tensor, int rank);
  std::shared_ptr<C10dMessage> receive(const at::Tensor& tensor, int rank);
  // Gives a message that is posted to the backend, after those before it with the same rank;
  // nothing after end().
  void launch(const C10dMessage& message);
  // The host waits, once for each message, at most `timeout` (0: the backend's own). Throws what
  // the backend throws; returns whether it has arrived: not ended by end(), and not left behind
  // by a group that could not be started.
  bool wait(const C10dMessage& message, std::chrono::milliseconds timeout);
  // Ends every wait, now and later. Blocks as long as the backend's aborts do.
  void end();

 private:
  using Batch = std::vector<std::shared_ptr<C10dMessage>>;
  std::shared_ptr<C10dMessage> numbered(bool is_sent, const at::Tensor& tensor, int rank);
  // What is posted for `rank`, up to `last` (null: all), and is posted no more.
  Batch take_posted(int rank, const C10dMessage* last);
  void start(const Batch& batch);
  bool is_over();

  c10d::Backend& backend_;
  const bool in_groups_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<int64_t> num_sent_, num_received_;  // by rank
  Batch posted_;                                  // receives, and sends that others follow
  std::mutex waits_mutex_;
  // Guarded by waits_mutex_.
  std::multiset<c10d::Work*> waits_;
  bool is_over_ = false;
};

}  // namespace tanren
