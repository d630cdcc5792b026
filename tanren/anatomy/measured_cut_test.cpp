#include "tanren/anatomy/measured_cut.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

using Blocks = std::vector<std::string>;

// Six blocks of equal multiply-adds.
ModelBlocks six_blocks() {
  ModelBlocks model;
  for (const char* name : {"stem", "h.0", "h.1", "h.2", "h.3", "head"}) {
    model.blocks.push_back({.name = name, .forward = 10, .backward = 20});
  }
  return model;
}

// Two recorded steps: the first two blocks are slow.
OperatorRecording slow_at_first() {
  OperatorRecording recording;
  recording.times.steps = 2;
  recording.blocks = {{"stem", 2, 4}, {"h.0", 2, 4},   {"h.1", 0.5, 1},
                      {"h.2", 1, 1},  {"h.3", 0.5, 1}, {"head", 0.5, 1}};
  return recording;
}

TEST(MeasuredCutTest, no_cut_of_a_model_without_blocks_or_where_none_is_possible) {
  EXPECT_TRUE(measured_cuts({}, slow_at_first()).empty());
  ModelBlocks model = six_blocks();
  for (BlockCost& block : model.blocks) block.obstacle = "the head also needs it";
  EXPECT_TRUE(measured_cuts(model, slow_at_first()).empty());
  model.blocks[2].obstacle.clear();  // one place: two stages, not four
  const auto cuts = measured_cuts(model, slow_at_first());
  ASSERT_EQ(cuts.size(), 1u);
  EXPECT_EQ(cuts[0].stages, 2);
  EXPECT_EQ(cuts[0].cut_at, Blocks{"h.2"});
  EXPECT_EQ(cuts[0].planned, Blocks{"h.2"});
  EXPECT_DOUBLE_EQ(cuts[0].ratio(), 1);
}

TEST(MeasuredCutTest, seconds_cut_where_multiply_adds_would_not) {
  const auto cuts = measured_cuts(six_blocks(), slow_at_first());
  ASSERT_EQ(cuts.size(), 2u);
  // A step: 3, 3, 0.75, 1, 0.75 and 0.75 seconds.
  EXPECT_EQ(cuts[0].cut_at, Blocks{"h.1"});
  EXPECT_EQ(cuts[0].planned, Blocks{"h.2"});
  EXPECT_DOUBLE_EQ(cuts[0].slowest, 6);
  EXPECT_DOUBLE_EQ(cuts[0].planned_slowest, 6.75);
  EXPECT_DOUBLE_EQ(cuts[0].ratio(), 1.125);
  EXPECT_EQ(cuts[1].stages, 4);
  EXPECT_EQ(cuts[1].cut_at, (Blocks{"h.0", "h.1", "h.2"}));
  EXPECT_DOUBLE_EQ(cuts[1].slowest, 3);
}

TEST(MeasuredCutTest, inner_blocks_count_for_their_outer_one_and_other_code_for_the_last) {
  OperatorRecording recording;
  recording.times.steps = 1;
  recording.blocks = {{"h.1.attention", 1, 2}, {"h.1", 3, 4}, {"h.10", 5, 6}, {"", 7, 8}};
  const ModelBlocks measured = with_measured_work(six_blocks(), recording);
  EXPECT_DOUBLE_EQ(measured.blocks[2].forward, 4);
  EXPECT_DOUBLE_EQ(measured.blocks[2].backward, 6);
  EXPECT_DOUBLE_EQ(measured.blocks[5].forward, 12);  // h.10 is not in h.1
  EXPECT_DOUBLE_EQ(measured.blocks[5].backward, 14);
  EXPECT_DOUBLE_EQ(measured.blocks[0].forward, 0);
}

TEST(MeasuredCutTest, a_block_that_runs_twice_has_half_its_seconds_in_each_place) {
  ModelBlocks model = six_blocks();
  model.blocks[3].name = "h.0";
  const ModelBlocks measured = with_measured_work(model, slow_at_first());
  EXPECT_DOUBLE_EQ(measured.blocks[1].forward, 0.5);
  EXPECT_DOUBLE_EQ(measured.blocks[3].backward, 1);
}

}  // namespace
}  // namespace tanren
