// What a run's folder holds. Compares the logs of two runs: the same lines, numbers to 1e-9, for
// any number of ranks and microsteps. Torch-free. Included by tests only.
#pragma once

#include "tanren/base/file.h"

#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace tanren::testing {

inline std::vector<nlohmann::json> read_log(const std::filesystem::path& folder) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(read_file(folder / "log.jsonl"));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

// The highest step with a complete checkpoint; 0 if there is none.
inline int64_t last_checkpoint(const std::filesystem::path& folder) {
  int64_t last = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "checkpoints", none)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("step-") || !std::filesystem::exists(entry.path() / "COMPLETE")) continue;
    last = std::max<int64_t>(last, std::stoll(name.substr(5)));
  }
  return last;
}

inline void expect_same_json(const nlohmann::json& a, const nlohmann::json& b,
                             const std::string& where) {
  if (a.is_object()) {
    for (const auto& [key, value] : a.items()) {
      // Runs may differ in how many microsteps a rank makes.
      if (key == "timing" || key == "microsteps" || key == "seconds") continue;
      ASSERT_TRUE(b.contains(key)) << where << " " << key;
      expect_same_json(value, b[key], where + "." + key);
    }
  } else if (a.is_number_float() && b.is_number()) {
    const auto one = a.get<double>(), other = b.get<double>();
    EXPECT_NEAR(one, other, 1e-9 * std::max(1.0, std::abs(one))) << where;
  } else {
    EXPECT_EQ(a, b) << where;
  }
}

inline void expect_same_log(const std::filesystem::path& a, const std::filesystem::path& b) {
  const auto one = read_log(a), other = read_log(b);
  ASSERT_EQ(one.size(), other.size()) << a << " " << b;
  for (size_t i = 0; i < one.size(); ++i) {
    expect_same_json(one[i], other[i], "line " + std::to_string(i));
  }
}

}  // namespace tanren::testing
