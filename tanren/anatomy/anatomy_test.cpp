#include "tanren/anatomy/anatomy.h"

#include "tests/support/block_config.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

TEST(AnatomyTest, a_model_of_blocks_has_cuts_by_seconds_no_slower_than_the_plans) {
  const Anatomy anatomy =
      dissect(testing::block_config("gpt2", "fp32"), Registry(), /*advises=*/false);
  EXPECT_TRUE(anatomy.tried.empty());
  EXPECT_EQ(anatomy.not_cut, "");
  double all = 0;
  for (const BlockTotal& block : anatomy.operators.blocks) {
    all += (block.forward_seconds + block.backward_seconds) /
           static_cast<double>(anatomy.operators.times.steps);
  }
  ASSERT_EQ(anatomy.cuts.size(), 2u);
  int64_t stages = 2;
  for (const MeasuredCut& cut : anatomy.cuts) {
    EXPECT_EQ(cut.stages, stages);
    EXPECT_EQ(std::ssize(cut.cut_at), stages - 1);
    EXPECT_EQ(std::ssize(cut.planned), stages - 1);
    EXPECT_GE(cut.slowest, all / static_cast<double>(stages) * (1 - 1e-9));
    EXPECT_LE(cut.slowest, all * (1 + 1e-9));
    EXPECT_GE(cut.planned_slowest, cut.slowest);
    stages *= 2;
  }
}

TEST(AnatomyTest, a_model_without_cuts_says_why) {
  RunConfig config = testing::tiny_config("mlp");
  config.model.hidden = {};
  const Anatomy anatomy = dissect(config, Registry(), /*advises=*/false);
  EXPECT_TRUE(anatomy.cuts.empty());
  EXPECT_EQ(anatomy.not_cut, "too few blocks end where another can begin");
}

}  // namespace
}  // namespace tanren
