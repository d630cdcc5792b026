#include "tanren/comm/c10d_communicator.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
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

}  // namespace
}  // namespace tanren
