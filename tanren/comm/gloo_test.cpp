#include "tanren/comm/gloo.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/comm/on_ranks_test_util.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <latch>
#include <regex>
#include <string>
#include <thread>
#include <vector>

namespace tanren {
namespace {

using namespace std::chrono_literals;
using testing::error_of;
using testing::on_gloo_ranks;

TEST(Gloo, a_cancel_ends_the_waits_of_all_ranks) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> errors(3);
  on_gloo_ranks(3, [&](Communicator& comm) {
    if (comm.rank() == 1) return comm.cancel("it has no memory");
    errors[static_cast<size_t>(comm.rank())] =
        error_of<CommError>([&] { comm.sum(at::zeros({2})); });
    EXPECT_THROW(comm.sum(at::zeros({2})), CommError);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(errors[static_cast<size_t>(rank)], "[comm] rank 1: it has no memory");
  }
}

TEST(Gloo, a_rank_that_goes_with_a_sum_under_way_does_not_wait_for_it) {
  const auto start = std::chrono::steady_clock::now();
  on_gloo_ranks(2, [&](Communicator& comm) {
    if (comm.rank() == 0) comm.start_sum(at::zeros({2}));
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

TEST(Gloo, a_cancel_is_known_to_a_rank_that_waits_for_nothing) {
  std::latch checked(3);
  on_gloo_ranks(3, [&](Communicator& comm) {
    EXPECT_NO_THROW(comm.check());
    checked.arrive_and_wait();
    if (comm.rank() == 2) return comm.cancel("it has no memory");
    const auto end = std::chrono::steady_clock::now() + 10s;
    std::string why;
    while (why.empty() && std::chrono::steady_clock::now() < end) {
      try {
        comm.check();
        std::this_thread::sleep_for(1ms);
      } catch (const CommError& error) {
        why = error.what();
      }
    }
    EXPECT_EQ(why, "[comm] rank 2: it has no memory");
  });
}

TEST(Gloo, a_sum_of_a_type_that_it_does_not_carry_ends_all_ranks_with_that_reason) {
  std::vector<std::string> errors(2);
  on_gloo_ranks(2, [&](Communicator& comm) {
    errors[static_cast<size_t>(comm.rank())] = error_of<CommError>(
        [&] { comm.sum(at::zeros({2}, comm.rank() == 1 ? at::kShort : at::kDouble)); });
  });
  for (const auto& error : errors) {
    TANREN_EXPECT_CONTAINS(error, "[comm] rank 1, a sum over gloo and 2 ranks: ");
  }
}

TEST(Gloo, a_rank_that_leaves_before_a_sum_is_said) {
  std::string error;
  on_gloo_ranks(2, [&](Communicator& comm) {
    if (comm.rank() == 1) return;
    error = error_of<CommError>([&] { comm.sum(at::zeros({2})); });
  });
  TANREN_EXPECT_CONTAINS(error, "rank 1 has left");
}

TEST(Gloo, a_rank_that_answers_and_does_not_come_to_a_sum_is_named) {
  const testing::TemporaryFolder folder;
  const std::string rendezvous = "file://" + (folder.path() / "rendezvous").string();
  std::vector<std::string> errors(3);
  testing::run_ranks(
      3, [&](int rank) { return gloo_communicator(testing::world_at(rank, 3, rendezvous), 2s); },
      [&](Communicator& comm) {
        comm.sum(at::zeros({2}));
        errors[static_cast<size_t>(comm.rank())] = error_of<CommError>([&] {
          for (;;) {
            if (comm.rank() != 1) comm.sum(at::zeros({2}));
            comm.check();
            std::this_thread::sleep_for(1ms);
          }
        });
      });
  for (const auto& error : errors) {
    TANREN_EXPECT_CONTAINS(error,
                           "[comm] rank 1 did not come to a sum over gloo and 3 ranks within 2 s "
                           "(parallel.timeout): it answers, and at its start it has started 1 of 2 "
                           "operations");
  }
}

TEST(Gloo, a_part_that_does_not_connect_is_told_with_its_ranks_in_the_world) {
  std::vector<std::string> errors(4);
  on_gloo_ranks(4, [&](Communicator& comm) {
    comm.sum(at::zeros({1}));
    if (comm.rank() == 0) ::setenv("GLOO_SOCKET_IFNAME", "no-such-interface", /*overwrite=*/1);
    comm.sum(at::zeros({1}));  // then all see it
    errors[static_cast<size_t>(comm.rank())] =
        error_of<CommError>([&] { comm.split(comm.rank() / 2); });
  });
  ::unsetenv("GLOO_SOCKET_IFNAME");
  static const std::regex told(
      "\\[comm\\] rank (0|1) does not connect to the other ranks of its part, ranks 0, 1: .*|"
      "\\[comm\\] rank (2|3) does not connect to the other ranks of its part, ranks 2, 3: .*");
  for (const auto& error : errors) EXPECT_TRUE(std::regex_match(error, told)) << error;
}

TEST(Gloo, one_rank_alone_works) {
  on_gloo_ranks(1, [](Communicator& comm) {
    at::Tensor mine = at::ones({2});
    comm.sum(mine);
    EXPECT_TRUE(at::equal(mine, at::ones({2})));
  });
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
