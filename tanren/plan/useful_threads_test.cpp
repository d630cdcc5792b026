#include "tanren/plan/useful_threads.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

Plan plan_of(int64_t threads) {
  Plan plan;
  plan.device.threads = threads;
  plan.lines.push_back({"threads", std::to_string(threads), Source::planned, "cores"});
  return plan;
}

TEST(UsefulThreads, what_was_asked_for_is_obeyed_and_so_is_what_nobody_measured) {
  const OperatorSizes small{.elements = 2048, .multiply_adds = 131'072, .parameters = 9000};
  Plan asked = plan_of(2), device = plan_of(2), unknown = plan_of(2);
  asked.run.threads = 2;
  device.device.device = "cuda:0";
  EXPECT_FALSE(limit_threads(small, asked));
  EXPECT_FALSE(limit_threads(small, device));
  EXPECT_FALSE(limit_threads({.parameters = 9000}, unknown));
  for (const Plan& plan : {asked, device, unknown}) {
    EXPECT_EQ(plan.device.threads, 2);
    EXPECT_EQ(plan.lines[0].reason, "cores");
  }
}

TEST(UsefulThreads, small_operators_get_one_thread_and_the_line_says_why) {
  Plan plan = plan_of(2);
  EXPECT_TRUE(
      limit_threads({.elements = 2048, .multiply_adds = 131'072, .parameters = 9000}, plan));
  EXPECT_EQ(plan.device.threads, 1);
  EXPECT_EQ(plan.lines[0].value, "1");
  EXPECT_NE(plan.lines[0].reason.find("2,048 results and 131,072 multiply-adds: of 2 threads 1 "
                                      "would only wait"),
            std::string::npos)
      << plan.lines[0].reason;
}

TEST(UsefulThreads, any_kind_of_large_operator_keeps_threads_busy) {
  EXPECT_EQ(useful_threads({}), 1);
  EXPECT_EQ(useful_threads(
                {.elements = 65'535, .multiply_adds = (4 << 20) - 1, .parameters = (1 << 20) - 1}),
            1);
  EXPECT_EQ(useful_threads({.elements = 65'536}), 2);
  EXPECT_EQ(useful_threads({.elements = 1, .multiply_adds = 4 << 20}), 2);
  EXPECT_EQ(useful_threads({.elements = 1, .parameters = 1 << 20}), 2);
  Plan plan = plan_of(16);
  EXPECT_TRUE(limit_threads({.elements = 65'536, .multiply_adds = 9'437'184}, plan));
  EXPECT_EQ(plan.device.threads, 4);
  Plan few = plan_of(4);
  EXPECT_FALSE(limit_threads({.elements = 65'536, .multiply_adds = 9'437'184}, few));
  EXPECT_EQ(few.device.threads, 4);
}

}  // namespace
}  // namespace tanren
