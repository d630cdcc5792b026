// C10dMessages: messages between two ranks over a backend of c10d. Invariant: the n-th message sent
// to a rank is the n-th that it receives from this rank. One thread starts messages, any thread may
// wait. Called by c10d_communicator.cpp.
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
  int rank;      // the other rank, in the backend
  int tag;
  std::vector<at::Tensor> bytes;             // one flat tensor
  c10::intrusive_ptr<c10d::Work> work = {};  // null: posted, not given to the backend yet
};

class C10dMessages {
 public:
  // `in_groups`: the backend runs its operations one after the other, so a receive would delay the
  // operations after it. A receive is therefore given to the backend as one group with the next
  // send to the same rank. If it is waited for earlier, its group consists of the posted messages
  // of that rank up to it. A wait for one message of a group waits for the whole group.
  C10dMessages(c10d::Backend& backend, bool in_groups);

  // Throw what the backend throws.
  std::shared_ptr<C10dMessage> send(const at::Tensor& tensor, int rank);
  // Sends together with the next send to this rank, or when the message is waited for. Without
  // groups it sends at once.
  std::shared_ptr<C10dMessage> post(const at::Tensor& tensor, int rank);
  std::shared_ptr<C10dMessage> receive(const at::Tensor& tensor, int rank);
  // Gives a posted message to the backend, after the posted messages before it of the same rank.
  // Does nothing after end().
  void launch(const C10dMessage& message);
  // Waits for a message at most `timeout`. With 0 the backend sets the limit, and a device's
  // backend makes only its stream wait. Call it once for each message. Returns false if end() has
  // ended the wait or if the message was never started. Throws what the backend throws.
  bool wait(const C10dMessage& message, std::chrono::milliseconds timeout);
  // Ends every wait, now and later. Blocks as long as the backend's aborts do.
  void end();

 private:
  using Batch = std::vector<std::shared_ptr<C10dMessage>>;
  std::shared_ptr<C10dMessage> numbered(bool is_sent, const at::Tensor& tensor, int rank);
  // Removes and returns the messages posted for `rank`, up to `last` (null: all).
  Batch take_posted(int rank, const C10dMessage* last);
  void start(const Batch& batch);
  bool is_over();

  c10d::Backend& backend_;
  const bool in_groups_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<int64_t> num_sent_, num_received_;  // by rank
  Batch posted_;                                  // receives, and sends of post()
  std::mutex waits_mutex_;
  // Guarded by waits_mutex_.
  std::multiset<c10d::Work*> waits_;
  bool is_over_ = false;
};

}  // namespace tanren
