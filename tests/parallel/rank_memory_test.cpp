// Lets allocations in the microsteps of one of two ranks fail in turn. That rank recovers alone
// while the other only waits; weights and number of collectives stay the same.
#include "tests/support/allocations.h"
#include "tests/support/rank_injection.h"
#include "tests/support/token_data.h"

#include <gtest/gtest.h>

namespace tanren::testing {
namespace {

RunConfig injected_config(const std::string& mode) {
  auto config = tiny_config("gpt2");
  config.model.num_layers = 2;
  config.model.hidden_size = 16;
  config.model.num_heads = 2;
  config.batch.global_batch = "8";
  config.batch.microbatch = 2;
  config.precision.mode = mode;
  config.memory.limit = "8GiB";  // installs our allocator, under a sanitizer too
  config.parallel.first_bucket_mb = 1.0 / 1024;
  config.parallel.bucket_mb = 4.0 / 1024;
  return config;
}

class RankMemory : public ::testing::Test {
 protected:
  void TearDown() override {
    set_cpu_memory_limit(0);
    uninstall_cpu_allocator();
  }
};

TEST_F(RankMemory, any_allocation_of_one_ranks_step_may_fail_and_the_other_rank_just_waits) {
  expect_any_allocation_may_fail(injected_config("fp64"), TokenData(32), "2 ranks");
}

TEST_F(RankMemory, in_fp32_the_gradients_stay_within_their_rounding) {
  const TokenData data(32);
  const auto config = injected_config("fp32");
  const InjectedStep expected = injected_step(config, data, INT64_MAX);
  int64_t recoveries = 0;
  for (int64_t index = 5; index < 400; index += 13) {
    const InjectedStep got = injected_step(config, data, index);
    recoveries += got.recoveries;
    EXPECT_LT(relative(got.gradients, expected.gradients), 1e-6) << index;
  }
  EXPECT_GT(recoveries, 10);
}

// With zero = 1 both ranks have optimizer state to write.
TEST_F(RankMemory, so_it_is_with_an_overflow_a_skip_an_evaluation_and_a_checkpoint) {
  auto config = eventful_config();
  config.parallel.zero = 1;
  config.batch.global_batch = "8";
  config.batch.microbatch = 2;
  const auto data = open_dataset(config.data.train, "data.train");
  const InjectedStep expected = injected_events(config, *data, INT64_MAX);
  int64_t injections = 0, recoveries = 0;
  const int64_t stride = allocation_stride(7);
  for (int64_t index = first_allocation(stride);; index += stride) {
    const InjectedStep got = injected_events(config, *data, index);
    if (!got.failed) break;
    ++injections;
    recoveries += got.recoveries;
    EXPECT_TRUE(at::equal(got.weights, expected.weights)) << index;
    EXPECT_EQ(got.operations, expected.operations) << index;
  }
  std::printf("2 ranks, all events: %lld allocations of rank 1 failed, %lld microsteps recovered\n",
              static_cast<long long>(injections), static_cast<long long>(recoveries));
  EXPECT_GT(recoveries, 50);
}

}  // namespace
}  // namespace tanren::testing
