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
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(3.0 * (1 << 30)), "3.0 GiB");
  EXPECT_EQ(seconds_text(4.2), "4.2s");
  EXPECT_EQ(seconds_text(185), "3m05s");
  EXPECT_EQ(seconds_text(3720), "1h02m");
}

TEST(Text, width_counts_columns_and_not_bytes) {
  EXPECT_EQ(display_width("\xff\xc3"), 2);  // no UTF-8: a column a byte
  EXPECT_EQ(display_width(""), 0);
  EXPECT_EQ(display_width("30 × 5 ≥ 1 …"), 12);
  EXPECT_EQ(display_width("e\u0301"), 1);  // a combining accent stands on its letter
  EXPECT_EQ(display_width("鍛錬"), 4);
  EXPECT_EQ(padded("é×", 4), "é×  ");
  EXPECT_EQ(padded("too long", 3), "too long");
}

}  // namespace
}  // namespace tanren
