#include "tanren/base/names.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

TEST(Names, a_pattern_must_match_the_whole_name) {
  EXPECT_FALSE(matches("weight", "layer.weight"));
  EXPECT_FALSE(matches("layer", "layer.weight"));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_FALSE(matches("a?", "a"));
  EXPECT_FALSE(matches("*.bias", "bias"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_TRUE(matches("*", ""));
}

TEST(Names, stars_stand_for_any_run_and_question_marks_for_one) {
  EXPECT_TRUE(matches("*.bias", "stages.0.conv.bias"));
  EXPECT_TRUE(matches("stages.?.*", "stages.0.conv.bias"));
  EXPECT_TRUE(matches("a*b*c", "aXbYbZc"));  // matching must backtrack from the first b
  EXPECT_FALSE(matches("a*b*c", "aXbYbZ"));
  EXPECT_TRUE(matches_any({"x", "y*"}, "yes"));
  EXPECT_FALSE(matches_any({}, "yes"));
}

TEST(Names, the_nearest_name_is_near_or_there_is_none) {
  const std::vector<std::string> known = {"learning_rate", "weight_decay", "eps"};
  EXPECT_EQ(nearest("learning_rat", known), "learning_rate");
  EXPECT_EQ(nearest("wieght_decay", known), "weight_decay");
  EXPECT_EQ(nearest("zzzzzzzzzzzz", known), "");
  EXPECT_EQ(nearest("eps", {}), "");
  EXPECT_EQ(nearest("AdamW", {"adam", "nadam", "adamw"}), "adamw");
}

TEST(Names, joins_with_a_separator) {
  EXPECT_EQ(join({}), "");
  EXPECT_EQ(join({"a"}), "a");
  EXPECT_EQ(join({"a", "b"}, "; "), "a; b");
}

}  // namespace
}  // namespace tanren
