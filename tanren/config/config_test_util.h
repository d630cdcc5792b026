// Shared by the tests of this room: a small valid config and the error text of an invalid one.
#pragma once

#include "tanren/base/error.h"
#include "tanren/config/read_config.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tanren::config_test {

inline constexpr const char* kGood = R"([run]
epochs = 2
[model]
kind = "mlp"
[data.train]
kind = "csv"
path = "train.csv"
)";

inline RunConfig parse(const std::string& text, const std::vector<std::string>& sets = {}) {
  return parse_config(text, "run.toml", "/data", sets, {"mlp", "convnet", "own"});
}

// The error text of a config that must be refused.
inline std::string error_of(const std::string& text, const std::vector<std::string>& sets = {}) {
  try {
    parse(text, sets);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines{""};
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  return lines;
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "in: " << text << "\nmissing: " << part;
}

}  // namespace tanren::config_test
