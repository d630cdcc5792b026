#include "tanren/comm/c10d_communicator.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tanren {
namespace {

// Ends while a wait with a time limit gives up: after the decision, and before wait() returns.
class EndsWithTheSlice final : public c10d::Work {
 public:
  explicit EndsWithTheSlice(std::string error) : error_(std::move(error)) {}
  bool wait(std::chrono::milliseconds timeout) override {
    if (timeout == kNoTimeout || isCompleted()) return c10d::Work::wait(timeout);
    finish(error_.empty() ? nullptr : std::make_exception_ptr(std::runtime_error(error_)));
    throw std::runtime_error("Operation timed out!");
  }

 private:
  std::string error_;
};

class Backend final : public c10d::Backend {
 public:
  explicit Backend(std::string error) : c10d::Backend(0, 2), error_(std::move(error)) {}
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& /*tensors*/,
                                           const c10d::BroadcastOptions& /*options*/) override {
    return c10::make_intrusive<EndsWithTheSlice>(error_);
  }

 private:
  std::string error_;
};

class EndsNever final : public c10d::Work {};

class Hanging final : public c10d::Backend {
 public:
  Hanging() : c10d::Backend(0, 2) {}
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& /*tensors*/,
                                           const c10d::BroadcastOptions& /*options*/) override {
    return c10::make_intrusive<EndsNever>();
  }
  void abort() override {}
};

std::unique_ptr<Communicator> communicator(const std::string& error) {
  return c10d_communicator(c10::make_intrusive<Backend>(error),
                           {.name = "late", .is_busy = [] { return false; }});
}

TEST(C10dCommunicator, an_operation_that_ends_as_a_slice_of_its_wait_does_has_not_timed_out) {
  communicator("")->broadcast(at::zeros({3}), 0);
}

TEST(C10dCommunicator, an_operation_that_fails_as_a_slice_of_its_wait_ends_says_its_own_error) {
  const std::string error = testing::error_of<CommError>(
      [] { communicator("the cable is cut")->broadcast(at::zeros({3}), 0); });
  TANREN_EXPECT_CONTAINS(error, "the cable is cut");
}

TEST(C10dCommunicator, what_an_abort_leaves_unended_is_given_up_at_once_once_its_time_is_over) {
  const auto comm = c10d_communicator(c10::make_intrusive<Hanging>(),
                                      {.name = "hanging", .is_busy = [] { return false; }});
  std::vector<Communicator::Work> works;
  for (int i = 0; i < 40; ++i) works.push_back(comm->start_broadcast(at::zeros({3}), 0));
  comm->cancel("no memory");
  const auto start = std::chrono::steady_clock::now();
  for (const auto& work : works) EXPECT_THROW(work->wait(), CommError);
  // Each would otherwise wait a quarter of a second.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

// Behaves like NCCL's: the stream waits, the host does not.
class OnStream final : public c10d::Work {
 public:
  explicit OnStream(int looks) : looks_(looks) {}
  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }
  bool isCompleted() override { return looks_ == 0 || --looks_ == 0; }

 private:
  int looks_;  // until it is complete; below 0: never
};

class OfStreams final : public c10d::Backend {
 public:
  explicit OfStreams(int looks) : c10d::Backend(0, 2), looks_(looks) {}
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& /*tensors*/,
                                           const c10d::BroadcastOptions& /*options*/) override {
    return c10::make_intrusive<OnStream>(looks_);
  }
  void abort() override {}

 private:
  int looks_;
};

std::unique_ptr<Communicator> of_streams(int looks) {
  return c10d_communicator(c10::make_intrusive<OfStreams>(looks),
                           {.name = "streams",
                            .device = at::Device(at::kCUDA, 0),
                            .timeout = std::chrono::milliseconds(200)});
}

TEST(C10dCommunicator, the_host_waits_for_an_operation_of_a_device_until_it_has_finished) {
  of_streams(3)->start_broadcast(at::zeros({3}), 0)->wait_on_host();
}

TEST(C10dCommunicator, a_device_that_waits_for_a_lost_rank_does_not_hold_the_host_for_ever) {
  const auto comm = of_streams(-1);
  const auto work = comm->start_broadcast(at::zeros({3}), 0);
  work->wait();  // returns at once
  const std::string error = testing::error_of<CommError>([&] { work->wait_on_host(); });
  TANREN_EXPECT_CONTAINS(error, "its time is over");
}

TEST(C10dCommunicator, an_operation_of_a_device_that_an_abort_ended_has_no_result) {
  const auto comm = of_streams(1);
  const auto work = comm->start_broadcast(at::zeros({3}), 0);
  comm->cancel("no memory");
  const std::string error = testing::error_of<CommError>([&] { work->wait_on_host(); });
  TANREN_EXPECT_CONTAINS(error, "no memory");
}

// Writes down what it is given, in order; every operation is complete at once.
class Scribe : public c10d::Backend {
 public:
  explicit Scribe(std::string& log) : c10d::Backend(0, 3), log_(log) {}
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& /*tensors*/, int rank,
                                      int /*tag*/) override {
    return written(" send to " + std::to_string(rank));
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& /*tensors*/, int rank,
                                      int /*tag*/) override {
    return written(" receive from " + std::to_string(rank));
  }
  void startCoalescing() override { log_ += " ("; }
  c10::intrusive_ptr<c10d::Work> endCoalescing() override { return written(" )"); }

 private:
  class Complete final : public c10d::Work {
   public:
    Complete() { finish(); }
  };
  c10::intrusive_ptr<c10d::Work> written(const std::string& text) {
    log_ += text;
    return c10::make_intrusive<Complete>();
  }

  std::string& log_;
};

// Behaves like NCCL: a message waits for those started before it, and for all of its group.
std::unique_ptr<Communicator> with_one_stream(c10::intrusive_ptr<c10d::Backend> backend) {
  return c10d_communicator(std::move(backend), {.name = "stream", .in_groups = true});
}

// On one stream, a receive would hold back the sends after it. In a group with the send, a receive
// from another rank would hold back the rank that waits for the send.
TEST(C10dCommunicator, a_receive_of_an_engine_with_one_stream_goes_with_the_next_send_to_its_rank) {
  std::string log;
  const auto comm = with_one_stream(c10::make_intrusive<Scribe>(log));
  const at::Tensor row = at::zeros({3});
  const auto first = comm->start_receive(row, 1), second = comm->start_receive(row, 2);
  EXPECT_EQ(log, "");
  const auto sent = comm->start_send(row, 1);
  EXPECT_EQ(log, " ( receive from 1 send to 1 )");
  for (const auto* work : {&first, &sent}) (*work)->wait();
  log.clear();
  second->wait();
  EXPECT_EQ(log, " ( receive from 2 )");
}

// What is received later may depend on what this rank sends after the wait.
TEST(C10dCommunicator, a_wait_on_one_stream_starts_the_receives_of_its_rank_up_to_its_own_alone) {
  std::string log;
  const auto comm = with_one_stream(c10::make_intrusive<Scribe>(log));
  const at::Tensor row = at::zeros({3});
  std::vector<Communicator::Work> works;
  for (const int rank : {1, 2, 1, 1}) works.push_back(comm->start_receive(row, rank));
  works[2]->wait();
  EXPECT_EQ(log, " ( receive from 1 receive from 1 )");
  works[0]->wait();
  EXPECT_EQ(log, " ( receive from 1 receive from 1 )");
  log.clear();
  works[3]->wait();
  EXPECT_EQ(log, " ( receive from 1 )");
}

// In two groups, the second would wait for the first's receive, which may depend on the second.
TEST(C10dCommunicator, a_posted_send_goes_as_one_group_with_the_send_that_follows_it) {
  std::string log;
  const auto comm = with_one_stream(c10::make_intrusive<Scribe>(log));
  const at::Tensor row = at::zeros({3});
  std::vector<Communicator::Work> works;
  works.push_back(comm->start_receive(row, 1));
  works.push_back(comm->post_send(row, 1));
  works.push_back(comm->post_send(row, 2));
  EXPECT_EQ(log, "");
  works.push_back(comm->start_send(row, 1));
  EXPECT_EQ(log, " ( receive from 1 send to 1 send to 1 )");
  log.clear();
  works[2]->wait();  // no other send follows it
  EXPECT_EQ(log, " ( send to 2 )");
  for (const auto& work : works) work->wait();
  EXPECT_EQ(log, " ( send to 2 )");
}

TEST(C10dCommunicator, after_a_failure_a_receive_that_is_posted_is_not_started) {
  std::string log;
  const auto comm = with_one_stream(c10::make_intrusive<Scribe>(log));
  const auto work = comm->start_receive(at::zeros({3}), 1);
  comm->cancel("no memory");
  const std::string error = testing::error_of<CommError>([&] { work->wait(); });
  TANREN_EXPECT_CONTAINS(error, "[comm] rank 0: no memory; rank 0 waited for rank 1 to send");
  EXPECT_EQ(log, "");
}

class RefusesReceives final : public Scribe {
 public:
  using Scribe::Scribe;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& /*tensors*/, int /*rank*/,
                                      int /*tag*/) override {
    throw std::runtime_error("the cable is cut");
  }
};

TEST(C10dCommunicator, a_group_that_cannot_be_started_is_closed_and_ends_the_waits_for_all_of_it) {
  std::string log;
  const auto comm = with_one_stream(c10::make_intrusive<RefusesReceives>(log));
  const auto first = comm->start_receive(at::zeros({3}), 1),
             second = comm->start_receive(at::zeros({3}), 1);
  for (const auto* work : {&second, &first}) {
    TANREN_EXPECT_CONTAINS(testing::error_of<CommError>([&] { (*work)->wait(); }),
                           "the cable is cut");
  }
  EXPECT_EQ(log, " ( )");
}

class KeepsTags final : public c10d::Backend {
 public:
  explicit KeepsTags(std::vector<int>& tags) : c10d::Backend(0, 2), tags_(tags) {}
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& /*tensors*/, int /*rank*/,
                                      int tag) override {
    tags_.push_back(tag);
    return c10::make_intrusive<EndsNever>();
  }
  void abort() override {}

 private:
  std::vector<int>& tags_;
};

// With Fibonacci hashing, sizes that differ by a Fibonacci number would share their hash.
TEST(C10dCommunicator, tags_of_messages_tell_sizes_and_dtypes_apart) {
  std::vector<int> tags;
  const auto comm = c10d_communicator(c10::make_intrusive<KeepsTags>(tags), {.name = "tags"});
  const auto hash_of = [&](const at::Tensor& tensor) {
    comm->start_send(tensor, 1);
    return tags.back() & 0x7FFF;  // above, the number of the message
  };
  constexpr int64_t kFibonacci = 832'040;
  for (int64_t size = 1000; size <= 20'000; size += 1000) {
    EXPECT_NE(hash_of(at::empty({size}, at::kByte)),
              hash_of(at::empty({size + kFibonacci}, at::kByte)))
        << size;
  }
  EXPECT_NE(hash_of(at::empty({2}, at::kFloat)), hash_of(at::empty({2}, at::kInt)));
  EXPECT_EQ(tags.back() >> 15, 41);
}

class HasEnded final : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }
};

// Each abort returns once both have begun, as NCCL's may.
class AbortsTogether final : public c10d::Backend {
 public:
  struct Both {
    std::latch begun{2};
    std::atomic<int> ended = 0;
  };
  explicit AbortsTogether(Both& both) : c10d::Backend(0, 1), both_(both) {}
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& whole, at::Tensor& part,
                                                 const c10d::AllgatherOptions& /*opts*/) override {
    whole.copy_(part.view(whole.sizes()));
    return c10::make_intrusive<HasEnded>();
  }
  void abort() override {
    both_.begun.count_down();
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(4);
    while (!both_.begun.try_wait() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (both_.begun.try_wait() && std::chrono::steady_clock::now() < end) ++both_.ended;
  }

 private:
  Both& both_;
};

// https://github.com/pytorch/pytorch/issues/132291
TEST(C10dCommunicator, the_abort_of_a_part_does_not_wait_for_the_abort_of_another) {
  AbortsTogether::Both both;
  const auto backend = [&] { return c10::make_intrusive<AbortsTogether>(both); };
  {
    const auto comm = c10d_communicator(
        backend(),
        {.name = "together", .split = [&](const C10dPart&) { return C10dBackend{backend()}; }});
    const auto part = comm->split(0);
    comm->cancel("no memory");
  }
  EXPECT_EQ(both.ended, 2);
}

TEST(C10dCommunicator, messages_of_another_engine_go_at_once) {
  std::string log;
  const auto comm = c10d_communicator(c10::make_intrusive<Scribe>(log), {.name = "any"});
  const at::Tensor row = at::zeros({3});
  const auto received = comm->start_receive(row, 2), sent = comm->start_send(row, 1);
  EXPECT_EQ(log, " receive from 2 send to 1");
  const auto posted = comm->post_send(row, 1);
  EXPECT_EQ(log, " receive from 2 send to 1 send to 1");
  received->wait();
  sent->wait_on_host();
}

TEST(C10dCommunicator, a_message_that_fails_says_which_it_was) {
  const auto comm = c10d_communicator(c10::make_intrusive<Hanging>(), {.name = "hanging"});
  // The backend has no send.
  const std::string error = testing::error_of<CommError>(
      [&] { comm->start_send(at::zeros({3}), 1, "the gradient of microbatch 3"); });
  TANREN_EXPECT_CONTAINS(error, "[comm] rank 0, a message over hanging and 2 ranks: ");
  TANREN_EXPECT_CONTAINS(
      error, "rank 0 waited for rank 1 to take the gradient of microbatch 3 (12 bytes)");
}

TEST(C10dCommunicator, a_backend_that_cannot_be_split_says_so) {
  const auto comm = c10d_communicator(c10::make_intrusive<Hanging>(), {.name = "hanging"});
  TANREN_EXPECT_CONTAINS(testing::error_of<CommError>([&] { comm->split(0); }),
                         "the engine hanging cannot be split into parts");
}

// Behaves like a connection that breaks amid a payload: the wait does not end by itself.
class EndedByAbort final : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    std::unique_lock lock(mutex_);
    cv_.wait_for(lock, std::chrono::seconds(20), [&] { return aborted_; });
    return !aborted_;
  }
  void abort() override {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    cv_.notify_all();
  }

 private:
  bool aborted_ = false;
};

class Deaf final : public c10d::Backend {
 public:
  Deaf() : c10d::Backend(0, 2) {}
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& /*tensors*/, int /*rank*/,
                                      int /*tag*/) override {
    return c10::make_intrusive<EndedByAbort>();
  }
};

TEST(C10dCommunicator, a_cancel_aborts_the_messages_that_are_waited_for) {
  const auto comm = c10d_communicator(c10::make_intrusive<Deaf>(), {.name = "deaf"});
  const auto work = comm->start_receive(at::zeros({3}), 1);
  std::thread cancels([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    comm->cancel("no memory");
  });
  const std::string error = testing::error_of<CommError>([&] { work->wait(); });
  cancels.join();
  TANREN_EXPECT_CONTAINS(error, "[comm] rank 0: no memory; rank 0 waited for rank 1 to send");
}

}  // namespace
}  // namespace tanren
