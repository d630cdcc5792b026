#include "tanren/base/core_wait.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

TEST(CoreWait, text_of_another_kind_has_no_answer) {
  for (const char* text : {"", "12", "x y z", "12 -5 1", "full avg10=1.00 total=0",
                           "some avg10=", "some avg60=3.00"}) {
    EXPECT_FALSE(share_of_pressure(text)) << text;
  }
  for (const char* text : {"", "12", "x y z", "12 -5 1", "some avg10=1.00"}) {
    EXPECT_FALSE(seconds_waited(text)) << text;
  }
}

TEST(CoreWait, reads_what_the_kernel_writes) {
  EXPECT_DOUBLE_EQ(*share_of_pressure("some avg10=63.10 avg60=22.91 avg300=23.33 total=164290725\n"
                                      "full avg10=0.00 avg60=0.00 avg300=0.00 total=0"),
                   0.631);
  EXPECT_DOUBLE_EQ(*seconds_waited("4000000000 2500000000 17\n"), 2.5);
}

}  // namespace
}  // namespace tanren
