#include "tanren/optimizer/schedule.h"

#include "tanren/base/error.h"
#include "tanren/optimizer/fixture_test_util.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

constexpr int64_t kTotal = 40;
constexpr double kPeak = 0.3;

TEST(Schedule, an_unknown_kind_names_the_nearest) {
  try {
    learning_rate({.kind = "cosin"}, 1, 0, 10);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("'cosine'"), std::string::npos) << error.what();
  }
}

TEST(Schedule, equals_transformers_after_the_warm_up_and_is_one_step_ahead_in_it) {
  for (const char* kind : {"constant", "linear", "cosine"}) {
    for (const int64_t warmup : {0, 1, 8}) {
      const at::Tensor rates =
          testing::fixture("schedule").at(std::string(kind) + "/" + std::to_string(warmup));
      for (int64_t step = 0; step < kTotal; ++step) {
        const int64_t theirs = step < warmup ? step + 1 : step;
        EXPECT_NEAR(learning_rate({.kind = kind, .warmup_steps = warmup}, kPeak, step, kTotal),
                    rates[theirs].item<double>(), 1e-15)
            << kind << " " << warmup << " " << step;
      }
    }
  }
}

TEST(Schedule, no_update_of_a_run_has_rate_zero) {
  for (const char* kind : {"constant", "linear", "cosine"}) {
    for (const int64_t total : {1, 2, 40}) {
      for (const int64_t warmup : {0, 1, 8}) {
        for (int64_t step = 0; step < total; ++step) {
          EXPECT_GT(learning_rate({.kind = kind, .warmup_steps = warmup}, kPeak, step, total), 0);
        }
      }
    }
  }
}

TEST(Schedule, decays_to_the_final_fraction_and_stays_there) {
  for (const char* kind : {"linear", "cosine"}) {
    const ScheduleOptions options{.kind = kind, .warmup_steps = 4, .final_fraction = 0.1};
    EXPECT_DOUBLE_EQ(learning_rate(options, kPeak, 4, kTotal), kPeak);
    EXPECT_DOUBLE_EQ(learning_rate(options, kPeak, kTotal, kTotal), 0.1 * kPeak);
    EXPECT_DOUBLE_EQ(learning_rate(options, kPeak, 3 * kTotal, kTotal), 0.1 * kPeak);
    EXPECT_DOUBLE_EQ(learning_rate(options, kPeak, 22, kTotal), 0.55 * kPeak);
  }
}

}  // namespace
}  // namespace tanren
