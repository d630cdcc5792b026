#include "tanren/config/toml.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

// The bugs of toml++ that toml.h fixes (issue 21: in each version that it supports).

// A constant expression does not compile if it reaches code that toml++ marks unreachable.
constexpr bool letters_are_no_space() {
  for (char32_t letter = U'\u00A1'; letter <= U'\u0499'; ++letter) {
    if (toml::impl::is_non_ascii_horizontal_whitespace(letter)) return false;
  }
  return true;
}

TEST(Toml, letters_out_of_place_are_no_white_space) {
  static_assert(letters_are_no_space());
  static_assert(toml::impl::is_non_ascii_horizontal_whitespace(U'\u00A0'));
  EXPECT_THROW(static_cast<void>(toml::parse("a \u00D7 = 1\n")), toml::parse_error);
}

TEST(Toml, a_key_that_begins_as_none_is_a_fault_and_ends_no_process) {
  EXPECT_THROW(static_cast<void>(toml::parse("[=]\n")), TomlFault);
}

}  // namespace
}  // namespace tanren
