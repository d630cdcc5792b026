#include "tanren/parallel/sharded_parameters.h"

#include "tanren/base/error.h"
#include "tanren/base/operator_record.h"
#include "tanren/base/testing.h"
#include "tanren/comm/on_ranks_test_util.h"
#include "tanren/comm/thread_group.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tanren {
namespace {

constexpr int kGathering = 2;
constexpr int64_t kOfBucket = 16;

// Three parameters in a bucket each, and an update that adds 1 to all.
struct Updated {
  std::vector<at::Tensor> parameters;
  Gradients gradients;
  ShardedParameters shards;

  explicit Updated(int rank)
      : parameters(made()), gradients(parameters, sharding(rank)), shards(gradients) {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& own : shards.owned()) at::Tensor(own).add_(1);
  }
  static std::vector<at::Tensor> made() {
    std::vector<at::Tensor> all;
    for (int i = 0; i < 3; ++i) {
      all.push_back(at::full({kOfBucket}, 10.0 * i, at::kDouble).set_requires_grad(true));
    }
    return all;
  }
  static Sharding sharding(int rank) {
    return {.rank = rank,
            .layout = {.first_bucket_bytes = kOfBucket * 8,
                       .bucket_bytes = kOfBucket * 8,
                       .parts = kGathering,
                       .unit = 2}};
  }
};

TEST(WaitOnUse, an_operator_waits_for_the_buckets_of_what_it_is_given_and_no_other) {
  const ThreadGroup group(kGathering);
  testing::on_ranks(group, kGathering, [](Communicator& comm) {
    Updated updated(comm.rank());
    ShardedParameters& shards = updated.shards;
    shards.start_gather(comm);
    ASSERT_EQ(shards.num_gathering(), 3);
    WaitOnUse waits({&shards});
    EXPECT_TRUE(at::equal(updated.parameters[1] * 2, at::full({kOfBucket}, 22.0, at::kDouble)));
    EXPECT_EQ(shards.num_gathering(), 2);
    const at::Tensor stacked = at::stack({updated.parameters[1], updated.parameters[0]});
    EXPECT_EQ(stacked.sum().item<double>(), (11.0 + 1.0) * kOfBucket);
    EXPECT_EQ(shards.num_gathering(), 1);
    waits.finish();
    EXPECT_EQ(shards.num_gathering(), 0);
    EXPECT_TRUE(at::equal(updated.parameters[2], at::full({kOfBucket}, 21.0, at::kDouble)));
  });
}

TEST(WaitOnUse, sees_kernels_that_the_dispatcher_does_not) {
  const ThreadGroup group(kGathering);
  testing::on_ranks(group, kGathering, [](Communicator& comm) {
    Updated updated(comm.rank());
    updated.shards.start_gather(comm);
    const WaitOnUse waits({&updated.shards});
    const OperatorRecord record("tanren::a_kernel", updated.parameters[2]);
    EXPECT_EQ(updated.shards.num_gathering(), 2);
    const auto* values = updated.parameters[2].const_data_ptr<double>();
    EXPECT_EQ(values[0] + values[kOfBucket - 1], 42);
  });
}

TEST(WaitOnUse, an_operator_after_its_end_waits_for_nothing) {
  const ThreadGroup group(kGathering);
  testing::on_ranks(group, kGathering, [](Communicator& comm) {
    Updated updated(comm.rank());
    updated.shards.start_gather(comm);
    { const WaitOnUse waits({&updated.shards}); }
    (void)at::numel(updated.parameters[0].detach().view({-1}));
    EXPECT_EQ(updated.shards.num_gathering(), 3);
    updated.shards.wait();
  });
}

TEST(WaitOnUse, what_a_wait_throws_comes_out_at_the_end) {
  const ThreadGroup group(kGathering);
  testing::on_ranks(group, kGathering, [](Communicator& comm) {
    Updated updated(comm.rank());
    if (comm.rank() == 1) return comm.cancel("no memory");
    const std::string error = testing::error_of<CommError>([&] {
      updated.shards.start_gather(comm);
      WaitOnUse waits({&updated.shards});
      (void)(updated.parameters[0] * 2);
      waits.finish();
    });
    EXPECT_EQ(error, "[comm] rank 1: no memory");
  });
}

}  // namespace
}  // namespace tanren
