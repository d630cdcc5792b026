#include "tanren/config/set_text.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

using Items = std::vector<std::string>;

TEST(SetText, leaves_alone_what_is_no_list) {
  EXPECT_EQ(list_items("a, b"), Items());
  EXPECT_EQ(list_items("["), Items());
  EXPECT_EQ(list_items("[]"), Items());
  EXPECT_EQ(as_toml_list("top5"), "top5");
}

TEST(SetText, splits_lists_outside_brackets_and_quotes) {
  EXPECT_EQ(list_items(" [a,  b] "), (Items{"a", "b"}));
  EXPECT_EQ(list_items("[inputs: float[1,8] in [-1, 1], labels: int[] in [0, 9]]"),
            (Items{"inputs: float[1,8] in [-1, 1]", "labels: int[] in [0, 9]"}));
  EXPECT_EQ(list_items("[\"a, b\", c]"), (Items{"\"a, b\"", "c"}));
}

TEST(SetText, quotes_bare_words_and_keeps_quoted_ones) {
  EXPECT_EQ(as_toml_list("[accuracy, \"top5\", 'top3']"), "[\"accuracy\", \"top5\", 'top3']");
  EXPECT_EQ(as_toml_text("my \"own\" run"), "\"my \\\"own\\\" run\"");
  EXPECT_EQ(as_toml_text("\"quoted\""), "\"quoted\"");
  EXPECT_EQ(as_toml_text("\""), "\"\\\"\"");
}

}  // namespace
}  // namespace tanren
