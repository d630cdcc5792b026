#include "tanren/comm/exchange.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/comm/on_ranks_test_util.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tanren {
namespace {

using testing::error_of;
using testing::on_gloo_ranks;
using testing::on_ranks;

TEST(Exchange, rows_that_are_not_alike_are_told_on_every_rank) {
  std::vector<std::string> errors(2);
  on_ranks(2, [&](Communicator& comm) {
    errors[static_cast<size_t>(comm.rank())] = error_of<CommError>([&] {
      gather_rows(comm, comm.rank() == 0 ? at::zeros({2, 3}) : at::zeros({1, 2}, at::kLong));
    });
  });
  for (const auto& error : errors) {
    TANREN_EXPECT_CONTAINS(error,
                           "those of rank 1 have 16 bytes of Long each, those of rank 0 12 bytes "
                           "of Float each, in other dims");
  }
}

TEST(Exchange, rows_of_as_many_bytes_in_other_dims_are_not_alike) {
  on_ranks(2, [](Communicator& comm) {
    const at::Tensor rows = comm.rank() == 0 ? at::zeros({1, 2, 3}) : at::zeros({1, 3, 2});
    TANREN_EXPECT_CONTAINS(error_of<CommError>([&] { gather_rows(comm, rows); }), "in other dims");
  });
}

TEST(Exchange, a_scalar_has_no_rows) {
  const auto comm = single_communicator();
  EXPECT_THROW(gather_rows(*comm, at::scalar_tensor(1.0)), CommError);
}

void check_texts(Communicator& comm) {
  const std::vector<std::string> all = {"", std::string("zero\0byte", 9), std::string(5000, 'x')};
  std::vector<std::string> expected(all.begin(), all.begin() + comm.world_size());
  EXPECT_EQ(gather_texts(comm, all[static_cast<size_t>(comm.rank())]), expected);
  EXPECT_EQ(gather_texts(comm, ""),
            std::vector<std::string>(static_cast<size_t>(comm.world_size())));
}

TEST(Exchange, texts_of_any_length_and_byte_come_by_rank) {
  for (const int size : {1, 2, 3}) on_ranks(size, check_texts);
  on_gloo_ranks(3, check_texts);
}

void check_numbers(Communicator& comm) {
  const double large = 1LL << 53, rank = comm.rank();
  const auto sums = sum_numbers(comm, {rank + 1, rank == 0 ? large : 0.0, rank == 0 ? NAN : 1.0});
  ASSERT_EQ(sums.size(), 3u);
  const int size = comm.world_size();
  EXPECT_EQ(sums[0], size * (size + 1) / 2);
  EXPECT_EQ(sums[1], large);
  EXPECT_TRUE(std::isnan(sums[2]));
  EXPECT_TRUE(sum_numbers(comm, {}).empty());
}

TEST(Exchange, numbers_are_summed_in_fp64) {
  for (const int size : {1, 2, 3}) on_ranks(size, check_numbers);
  on_gloo_ranks(3, check_numbers);
}

void check_rows(Communicator& comm) {
  // Rank 1 has no rows; the others have as many as their rank, plus one.
  const auto num = comm.rank() == 1 ? 0 : comm.rank() + 1;
  for (const auto type : {at::kFloat, at::kBool, at::kBFloat16, at::kLong}) {
    const at::Tensor rows = at::full({num, 2, 3}, comm.rank() + 1).to(type);
    std::vector<at::Tensor> expected;
    for (int rank = 0; rank < comm.world_size(); ++rank) {
      if (rank != 1) expected.push_back(at::full({rank + 1, 2, 3}, rank + 1).to(type));
    }
    const at::Tensor all = gather_rows(comm, rows);
    EXPECT_EQ(all.scalar_type(), type);
    EXPECT_TRUE(at::equal(all, at::cat(expected))) << type;
  }
  // Rows that are not contiguous, and no rows on any rank.
  const at::Tensor columns = (at::arange(6).view({2, 3}) + 10 * comm.rank()).t();
  const at::Tensor all = gather_rows(comm, columns);
  EXPECT_TRUE(at::equal(all.narrow(0, 3 * comm.rank(), 3), columns));
  EXPECT_EQ(gather_rows(comm, at::empty({0, 4})).sizes(), at::IntArrayRef({0, 4}));
}

TEST(Exchange, rows_come_in_the_order_of_ranks_and_a_rank_may_have_none) {
  for (const int size : {1, 2, 3}) on_ranks(size, check_rows);
  on_gloo_ranks(3, check_rows);
}

TEST(Exchange, one_rank_sends_nothing) {
  const ThreadGroup group(1);
  on_ranks(group, 1, [](Communicator& comm) {
    gather_texts(comm, "mine");
    sum_numbers(comm, {1.0});
    gather_rows(comm, at::zeros({2}));
  });
  EXPECT_EQ(group.num_operations(), 0);
}

TEST(OnRanks, what_one_rank_throws_comes_out_and_the_others_do_not_hang) {
  const auto fails = [](Communicator& comm) {
    if (comm.rank() == 1) throw std::invalid_argument("rank 1 has no data");
    comm.sum(at::zeros({2}));
  };
  EXPECT_THROW(on_ranks(3, fails), std::invalid_argument);
  EXPECT_THROW(on_gloo_ranks(3, fails), std::invalid_argument);
}

TEST(OnRanks, the_first_comm_error_comes_out_where_there_is_no_other) {
  EXPECT_EQ(error_of<CommError>([] {
              on_ranks(2, [](Communicator& comm) {
                if (comm.rank() == 0) throw CommError("[comm] mine");
                comm.sum(at::zeros({2}));
              });
            }),
            "[comm] mine");
}

TEST(Communicator, carries_tensors_of_the_cpu_unless_it_says_another_device) {
  EXPECT_EQ(single_communicator()->device(), at::kCPU);
  on_ranks(2, [](Communicator& comm) { EXPECT_EQ(comm.device(), at::kCPU); });
  on_gloo_ranks(2, [](Communicator& comm) {
    EXPECT_EQ(comm.device(), at::kCPU);
    comm.sum(at::zeros({1}));  // a rank that leaves at once breaks connections being made
  });
}

}  // namespace
}  // namespace tanren
