#include "tanren/metrics/crc32c.h"

#include "tanren/metrics/event_reader_test_util.h"

#include <gtest/gtest.h>

#include <string>

namespace tanren {
namespace {

TEST(Crc32c, differs_by_any_flipped_bit) {
  const std::string bytes = "tanren";
  for (size_t i = 0; i < bytes.size() * 8; ++i) {
    std::string flipped = bytes;
    flipped[i / 8] = static_cast<char>(flipped[i / 8] ^ (1 << (i % 8)));
    EXPECT_NE(crc32c(flipped), crc32c(bytes));
  }
}

TEST(Crc32c, has_the_values_of_rfc_3720) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i);
  EXPECT_EQ(crc32c(rising), 0x46DD794Eu);
}

TEST(Crc32c, is_masked_as_tensorflow_does) {
  for (const std::string bytes : {"", "a", "brain.Event:2"}) {
    EXPECT_EQ(masked_crc32c(bytes), testing::slow_masked_crc(bytes));
  }
}

}  // namespace
}  // namespace tanren
