#include "tanren/checkpoint/values_json.h"

#include "tanren/base/error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tanren {
namespace {

std::map<std::string, Value> there_and_back(const std::map<std::string, Value>& values) {
  return values_from_json(nlohmann::ordered_json::parse(values_to_json(values).dump(1)));
}

TEST(ValuesJson, refuses_what_is_no_plain_value) {
  for (const char* text : {R"({"a":null})", R"({"a":[1]})", R"({"a":{"b":1}})",
                           R"({"a":{"double":"1.5"}})", R"({"a":18446744073709551615})"}) {
    EXPECT_THROW(values_from_json(nlohmann::ordered_json::parse(text)), CheckpointError) << text;
  }
}

TEST(ValuesJson, values_keep_their_type_and_every_bit) {
  using Limits = std::numeric_limits<double>;
  std::map<std::string, Value> values = {{"true", true},
                                         {"text", std::string("a \"b\"\n ü")},
                                         {"zero", int64_t{0}},
                                         {"min", std::numeric_limits<int64_t>::min()},
                                         {"odd", int64_t{9007199254740993}},
                                         {"max", std::numeric_limits<int64_t>::max()},
                                         {"one", 1.0},
                                         {"third", 1.0 / 3},
                                         {"tiny", Limits::denorm_min()},
                                         {"huge", Limits::max()},
                                         {"scale", 65536.0},
                                         {"infinite", Limits::infinity()},
                                         {"negative", -Limits::infinity()}};
  EXPECT_EQ(there_and_back(values), values);
}

TEST(ValuesJson, negative_zero_and_nan_come_back_as_such) {
  const auto values = there_and_back({{"nan", std::nan("")}, {"zero", -0.0}});
  EXPECT_TRUE(std::isnan(std::get<double>(values.at("nan"))));
  EXPECT_TRUE(std::signbit(std::get<double>(values.at("zero"))));
}

}  // namespace
}  // namespace tanren
