#include "tanren/comm/thread_group.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/comm/on_ranks_test_util.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <vector>

namespace tanren {
namespace {

using testing::error_of;
using testing::on_ranks;

TEST(ThreadGroup, ranks_that_ask_for_different_things_are_told_apart_and_none_hangs) {
  const ThreadGroup group(2);
  std::vector<std::string> errors(2);
  on_ranks(group, 2, [&](Communicator& comm) {
    errors[static_cast<size_t>(comm.rank())] =
        error_of<CommError>([&] { comm.sum(at::zeros({3 + comm.rank()})); });
  });
  for (const auto& error : errors) {  // the rank that comes second notices
    TANREN_EXPECT_CONTAINS(error, "a sum of 3 Float elements");
    TANREN_EXPECT_CONTAINS(error, "a sum of 4 Float elements");
  }
}

TEST(ThreadGroup, who_does_not_come_is_named_when_the_timeout_ends) {
  const ThreadGroup group(3, {.timeout = std::chrono::milliseconds(20)});
  std::vector<std::string> errors(3);
  on_ranks(group, 3, [&](Communicator& comm) {
    if (comm.rank() == 1) return;
    errors[static_cast<size_t>(comm.rank())] =
        error_of<CommError>([&] { comm.sum(at::zeros({2})); });
  });
  for (const int rank : {0, 2}) {
    TANREN_EXPECT_CONTAINS(errors[static_cast<size_t>(rank)], "rank 1 did not come");
  }
}

TEST(ThreadGroup, a_cancel_ends_what_waits_and_what_comes_later) {
  const ThreadGroup group(2);
  std::string error;
  on_ranks(group, 2, [&](Communicator& comm) {
    if (comm.rank() == 1) return comm.cancel("no memory");
    error = error_of<CommError>([&] { comm.sum(at::zeros({2})); });
    EXPECT_THROW(comm.start_sum(at::zeros({2})), CommError);
    EXPECT_THROW(comm.check(), CommError);
  });
  EXPECT_EQ(error, "[comm] rank 1: no memory");
}

TEST(ThreadGroup, a_sum_that_fails_is_told_to_all_ranks_alike) {
  const ThreadGroup group(2);
  std::vector<std::string> errors(2);
  on_ranks(group, 2, [&](Communicator& comm) {
    const int64_t rows = comm.rank() == 0 ? 200 : 300;  // equal counts, shapes that do not add
    const at::Tensor mine = at::zeros({rows, 60'000 / rows}).t();
    errors[static_cast<size_t>(comm.rank())] = error_of<CommError>([&] { comm.sum(mine); });
  });
  TANREN_EXPECT_CONTAINS(errors[0], "[comm] operation 0, a sum of 60000 Float elements: The size");
  EXPECT_EQ(errors[0], errors[1]);
}

TEST(ThreadGroup, parts_that_make_no_whole_are_refused) {
  const ThreadGroup group(2);
  EXPECT_THROW(group.communicator(0)->start_gather(at::zeros({3}), at::zeros({1})), CommError);
}

// A count of elements that the last rank sums alone, and one that is shared unequally by all ranks.
class SumsOf : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(ThreadGroup, SumsOf, ::testing::Values(1000, 50'003));

TEST_P(SumsOf, so_many_are_bitwise_the_same_on_all_ranks_and_every_time) {
  std::vector<at::Tensor> first;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const ThreadGroup group(4);
    std::vector<at::Tensor> sums(4);
    on_ranks(group, 4, [&](Communicator& comm) {
      at::Tensor mine = (at::arange(GetParam(), at::kFloat) * 0.1 + comm.rank()).sin();
      comm.sum(mine);
      sums[static_cast<size_t>(comm.rank())] = mine;
    });
    if (first.empty()) first = sums;
    for (size_t rank = 0; rank < 4; ++rank) EXPECT_TRUE(at::equal(sums[rank], first[0]));
  }
  at::Tensor expected = at::zeros({GetParam()}, at::kDouble);
  for (int rank = 0; rank < 4; ++rank) {
    expected += (at::arange(GetParam(), at::kDouble) * 0.1 + rank).sin();
  }
  // The fp32 angles have rounding errors.
  EXPECT_TRUE(
      at::allclose(first[0].to(at::kDouble), expected, 1e-4, GetParam() < 2000 ? 1e-5 : 2e-3));
}

TEST_P(SumsOf, so_many_scattered_and_gathered_again_are_the_sum) {
  const ThreadGroup group(3);
  const int64_t n = GetParam();
  on_ranks(group, 3, [n](Communicator& comm) {
    at::Tensor whole = at::arange(3 * n, at::kDouble) * (comm.rank() + 1);
    at::Tensor part = at::empty({n}, at::kDouble);
    comm.start_sum_scatter(part, whole)->wait();
    const at::Tensor expected = at::arange(3 * n, at::kDouble) * 6;
    EXPECT_TRUE(at::equal(part, expected.narrow(0, n * comm.rank(), n)));
    whole.zero_();
    comm.gather(whole, part);
    EXPECT_TRUE(at::equal(whole, expected));
    // In place: the part lies in the whole already.
    at::Tensor own = at::zeros({3 * n}, at::kDouble);
    own.narrow(0, n * comm.rank(), n).copy_(part);
    comm.gather(own, own.narrow(0, n * comm.rank(), n));
    EXPECT_TRUE(at::equal(own, expected));
  });
}

TEST(ThreadGroup, a_sum_of_a_tensor_that_is_not_contiguous_is_taken_whole) {
  const ThreadGroup group(3);
  on_ranks(group, 3, [](Communicator& comm) {
    const at::Tensor mine = at::full({300, 100}, comm.rank() + 1.0).t();
    comm.sum(mine);
    EXPECT_TRUE(at::equal(mine, at::full({100, 300}, 6.0)));
  });
}

TEST(ThreadGroup, a_broadcast_gives_all_ranks_the_root_s) {
  const ThreadGroup group(3);
  on_ranks(group, 3, [](Communicator& comm) {
    at::Tensor mine = at::full({5}, comm.rank(), at::kLong);
    comm.broadcast(mine, 2);
    EXPECT_TRUE(at::equal(mine, at::full({5}, 2, at::kLong)));
  });
}

TEST(ThreadGroup, operations_overlap_and_are_waited_for_in_any_order) {
  const ThreadGroup group(2);
  on_ranks(group, 2, [](Communicator& comm) {
    at::Tensor a = at::full({4}, 1.0), b = at::full({2}, 10.0);
    const auto first = comm.start_sum(a);
    const auto second = comm.start_sum(b);
    second->wait();
    first->wait();
    EXPECT_EQ(a.sum().item<double>(), 8);
    EXPECT_EQ(b.sum().item<double>(), 40);
  });
  EXPECT_EQ(group.num_operations(), 2);
  EXPECT_EQ(group.num_bytes(), (4 + 2) * 4);
}

TEST(ThreadGroup, an_imitated_link_carries_one_after_the_other) {
  const ThreadGroup group(2, {.bytes_per_second = 400'000});
  const auto start = std::chrono::steady_clock::now();
  on_ranks(group, 2, [](Communicator& comm) {
    at::Tensor a = at::zeros({1000}), b = at::zeros({1000});
    const auto first = comm.start_sum(a), second = comm.start_sum(b);
    first->wait();
    second->wait();
  });
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
}

TEST(Single, is_a_group_of_one) {
  const auto comm = single_communicator();
  EXPECT_EQ(comm->world_size(), 1);
  at::Tensor mine = at::full({3}, 7.0), whole = at::zeros({3});
  comm->sum(mine);
  comm->gather(whole, mine);
  EXPECT_TRUE(at::equal(whole, mine));
  comm->broadcast(mine, 0);
  EXPECT_EQ(mine.sum().item<double>(), 21);
}

}  // namespace
}  // namespace tanren
