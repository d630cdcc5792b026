#include "tanren/comm/gloo.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/comm/on_ranks_test_util.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace tanren {
namespace {

using namespace std::chrono_literals;
using testing::error_of;
using testing::free_port;
using testing::on_gloo_ranks;
using testing::world_at;

TEST(Gloo, a_rank_that_does_not_come_is_named) {
  const int port = free_port();
  TANREN_EXPECT_CONTAINS(
      error_of<CommError>([&] { gloo_communicator(world_at(0, 3, port), 200ms); }),
      "these ranks of 3 have not come to 127.0.0.1:" + std::to_string(port) + ": 1, 2");
}

TEST(Gloo, rank_0_that_is_not_there_is_said) {
  TANREN_EXPECT_CONTAINS(
      error_of<CommError>([&] { gloo_communicator(world_at(1, 2, free_port()), 200ms); }),
      "does not reach rank 0");
}

TEST(Gloo, two_processes_with_one_rank_are_told) {
  const int port = free_port();
  std::vector<std::string> errors(3);
  std::vector<std::thread> threads;
  for (const int i : {0, 1, 2}) {
    threads.emplace_back([&, i] {
      errors[static_cast<size_t>(i)] =
          error_of<CommError>([&] { gloo_communicator(world_at(std::min(i, 1), 3, port), 1s); });
    });
  }
  for (auto& thread : threads) thread.join();
  const bool first = errors[1].find("two processes say that they are rank 1") != std::string::npos;
  const bool second = errors[2].find("two processes say that they are rank 1") != std::string::npos;
  EXPECT_TRUE(first != second) << errors[1] << "\n" << errors[2];
}

TEST(Gloo, a_cancel_ends_the_waits_of_all_ranks) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> errors(3);
  on_gloo_ranks(3, [&](Communicator& comm) {
    if (comm.rank() == 1) return comm.cancel("[comm] rank 1 has no memory");
    errors[static_cast<size_t>(comm.rank())] =
        error_of<CommError>([&] { comm.sum(at::zeros({2})); });
    EXPECT_THROW(comm.sum(at::zeros({2})), CommError);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
  for (const int rank : {0, 2}) EXPECT_EQ(errors[static_cast<size_t>(rank)].rfind("[comm]", 0), 0u);
}

TEST(Gloo, a_rank_that_goes_with_a_sum_under_way_does_not_wait_for_it) {
  const auto start = std::chrono::steady_clock::now();
  on_gloo_ranks(2, [&](Communicator& comm) {
    if (comm.rank() == 0) comm.start_sum(at::zeros({2}));
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

TEST(Gloo, sums_of_every_dtype_that_training_needs) {
  on_gloo_ranks(3, [](Communicator& comm) {
    for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong}) {
      at::Tensor mine = at::full({5}, comm.rank() + 1, type);
      comm.sum(mine);
      EXPECT_TRUE(at::equal(mine, at::full({5}, 6, type))) << type;
    }
  });
}

TEST(Gloo, a_scattered_sum_gathered_again_is_the_sum) {
  on_gloo_ranks(2, [](Communicator& comm) {
    at::Tensor whole = at::arange(6, at::kDouble) * (comm.rank() + 1);
    at::Tensor part = at::empty({3}, at::kDouble);
    comm.start_sum_scatter(part, whole)->wait();
    const at::Tensor expected = at::arange(6, at::kDouble) * 3;
    EXPECT_TRUE(at::equal(part, expected.narrow(0, 3 * comm.rank(), 3)));
    at::Tensor own = at::zeros({6}, at::kDouble);
    own.narrow(0, 3 * comm.rank(), 3).copy_(part);
    comm.gather(own, own.narrow(0, 3 * comm.rank(), 3));
    EXPECT_TRUE(at::equal(own, expected));
    at::Tensor told = at::full({2}, comm.rank(), at::kLong);
    comm.broadcast(told, 1);
    EXPECT_TRUE(at::equal(told, at::full({2}, 1, at::kLong)));
  });
}

}  // namespace
}  // namespace tanren
