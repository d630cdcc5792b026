#include "tanren/data/text/encoding.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

std::string encoding_error(const std::string& bytes, const std::string& encoding = "utf-8") {
  return testing::error_of<DataError>([&] { decoded_text(bytes, encoding, "[data] a.csv"); });
}

TEST(Encoding, takes_all_of_unicode_and_nothing_else) {
  for (const char* good : {"", "plain\n", "ü", "€", "𝄞", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_FALSE(first_bad_byte(good)) << good;
  }
  // In this order: Latin-1, an overlong form, a lone surrogate, a code point beyond Unicode, a
  // character that is cut off, a zero byte.
  for (const std::string& bad :
       {std::string("ab\xe9 d"), std::string("ab\xc0\xaf"), std::string("ab\xed\xa0\x80"),
        std::string("ab\xf4\x90\x80\x80"), std::string("ab\xe2\x82"), std::string("ab\0c", 4)}) {
    EXPECT_EQ(first_bad_byte(bad), 2u) << bad;
  }
}

TEST(Encoding, an_error_names_line_and_byte_and_what_to_do) {
  const std::string latin = encoding_error("text,label\ncaf\xe9,1\n");
  TANREN_EXPECT_CONTAINS(latin, "[data] a.csv:2: byte 4 (0xE9) is no UTF-8");
  TANREN_EXPECT_CONTAINS(latin, "data.encoding = \"latin-1\"");
  TANREN_EXPECT_CONTAINS(encoding_error(std::string("a\nb\0c", 5)), "a.csv:2: byte 2 is 0");
  TANREN_EXPECT_CONTAINS(encoding_error(std::string("a\nb\0c", 5), "latin-1"), "byte 2 is 0");
  std::string wide = "\xff\xfe";
  for (const char c : std::string("text,label\n")) wide += {c, '\0'};
  TANREN_EXPECT_CONTAINS(encoding_error(wide), "is UTF-16");
  TANREN_EXPECT_CONTAINS(encoding_error(wide.substr(2)), "is UTF-16");
  TANREN_EXPECT_CONTAINS(encoding_error(wide, "latin-1"), "is UTF-16");
}

TEST(Encoding, a_file_is_cut_before_its_last_character_which_may_go_on) {
  EXPECT_EQ(last_character("ab"), 2U);
  EXPECT_EQ(last_character("ab\xe2"), 2U);
  EXPECT_EQ(last_character("ab\xe2\x82"), 2U);
  EXPECT_EQ(last_character("ab\xe2\x82\xac"), 2U);
  EXPECT_EQ(last_character("\x82\x82\x82\x82\x82"), 5U)
      << "that is no character: the check says so";
  EXPECT_EQ(last_character(""), 0U);
}

TEST(Encoding, latin_1_becomes_the_same_letters) {
  EXPECT_EQ(decoded_text("caf\xe9 \xa3", "latin-1", ""), "café £");
  EXPECT_EQ(decoded_text("café", "utf-8", ""), "café");
}

TEST(Encoding, counts_lines_and_bytes_over_parts) {
  TextCheck check("[convert] a.txt", "convert it");
  check.add("one\ntw");
  check.add("o\nth");
  TANREN_EXPECT_CONTAINS(testing::error_of<DataError>([&] { check.add("r\xff"); }),
                         "[convert] a.txt:3: byte 4 (0xFF) is no UTF-8; convert it");
}

}  // namespace
}  // namespace tanren
