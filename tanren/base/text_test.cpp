#include "tanren/base/text.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

namespace tanren {
namespace {

TEST(Text, a_double_reads_back_as_itself_and_is_short) {
  EXPECT_EQ(to_text(0.1), "0.1");
  EXPECT_EQ(to_text(3.0), "3");
  for (const double value :
       {1.0 / 3, 1e-8, 1e300, -0.0, 5e-324, std::numeric_limits<double>::max()}) {
    EXPECT_EQ(std::strtod(to_text(value).c_str(), nullptr), value);
  }
}

TEST(Text, sizes_and_times_carry_their_unit) {
  EXPECT_EQ(fixed_text(2.0 / 3, 2), "0.67");
  EXPECT_EQ(fixed_text(-0.5, 0), "-0");
  EXPECT_EQ(fixed_text(1e300, 1).size(), 303u);
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(3.0 * (1 << 30)), "3.0 GiB");
  EXPECT_EQ(seconds_text(4.2), "4.2s");
  EXPECT_EQ(seconds_text(185), "3m05s");
  EXPECT_EQ(seconds_text(3720), "1h02m");
}

TEST(Text, width_counts_columns_and_not_bytes) {
  EXPECT_EQ(display_width("\xff\xc3"), 2);  // not UTF-8: one column per byte
  EXPECT_EQ(display_width(""), 0);
  EXPECT_EQ(display_width("30 × 5 ≥ 1 …"), 12);
  EXPECT_EQ(display_width("e\u0301"), 1);  // a combining accent stands on its letter
  EXPECT_EQ(display_width("鍛錬"), 4);
  EXPECT_EQ(padded("é×", 4), "é×  ");
  EXPECT_EQ(padded("too long", 3), "too long");
  EXPECT_EQ(cut_text("é×…", 2), "é×");
  EXPECT_EQ(cut_text("鍛錬", 3), "鍛");
  EXPECT_EQ(cut_text("short", 9), "short");
}

TEST(Text, reads_amounts_of_memory_and_shares_and_nothing_else) {
  for (const char* wrong : {"", "much", "-1", "0", "1.5", "nan", "8 XiB", "8GiBs", "100%", "1e30GB",
                            "0.1b", "8bb", "1 000"}) {
    EXPECT_FALSE(parse_memory(wrong)) << wrong;
  }
  EXPECT_EQ(parse_memory("4096")->bytes, 4096);
  EXPECT_EQ(parse_memory("8GiB")->bytes, int64_t{8} << 30);
  EXPECT_EQ(parse_memory("8g")->bytes, int64_t{8} << 30);
  EXPECT_EQ(parse_memory("1.5 GB")->bytes, 1500000000);
  EXPECT_EQ(parse_memory("500mb")->bytes, 500000000);
  EXPECT_EQ(parse_memory("0.5")->share, 0.5);
  EXPECT_EQ(parse_memory("0.5")->bytes, 0);
  EXPECT_DOUBLE_EQ(parse_memory("90%")->share, 0.9);
}

TEST(Text, reads_lengths_of_time_and_nothing_else) {
  for (const char* wrong : {"", " ", "soon", "-1", "-1h", "0", "0h", "nan", "inf", "8x", "h",
                            "1h30", "30m1h", "1h1h", "1 2", "8hours", "1h-5m", "1e400"}) {
    EXPECT_FALSE(parse_seconds(wrong)) << wrong;
  }
  EXPECT_EQ(parse_seconds("90"), 90);
  EXPECT_EQ(parse_seconds("0.5"), 0.5);
  EXPECT_EQ(parse_seconds("45s"), 45);
  EXPECT_EQ(parse_seconds("8h"), 28800);
  EXPECT_EQ(parse_seconds(" 1.5 h "), 5400);
  EXPECT_EQ(parse_seconds("1h30m"), 5400);
  EXPECT_EQ(parse_seconds("2d 1h 1m 1s"), 2 * 86400 + 3661);
}

TEST(Text, the_first_line_of_a_message_is_the_first_that_says_something) {
  EXPECT_EQ(first_line("no good\nframe #0"), "no good");
  EXPECT_EQ(first_line("no good"), "no good");
  EXPECT_EQ(first_line("\n \r\n\tno good\r\nframe #0"), "\tno good");
  EXPECT_EQ(first_line("\n\n"), "");
  EXPECT_EQ(first_line(""), "");
}

TEST(Text, trims_and_splits_lines_of_either_kind) {
  EXPECT_EQ(trimmed(""), "");
  EXPECT_EQ(trimmed(" \t\r\n"), "");
  EXPECT_EQ(trimmed("\t a b \r\n"), "a b");
  std::string_view text = "one\r\n\ntwo";
  EXPECT_EQ(take_line(text), "one");
  EXPECT_EQ(take_line(text), "");
  EXPECT_EQ(take_line(text), "two");
  EXPECT_TRUE(text.empty());
}

TEST(Text, counts_have_their_thousands_apart_and_messages_their_trace_cut) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(1234567), "1,234,567");
  EXPECT_EQ(first_line("why\nframe #0: …"), "why");
  EXPECT_EQ(first_line("why"), "why");
}

}  // namespace
}  // namespace tanren
