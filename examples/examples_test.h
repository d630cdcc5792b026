// What the tests of the examples share: a temporary folder, and runs shortened by ci.toml.
// Torch-free.
#pragma once

#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tests/support/forked.h"
#include "tests/support/shell.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>

namespace tanren::testing {

namespace fs = std::filesystem;

inline const fs::path kExamples = fs::path(TANREN_SOURCE_DIR) / "examples";
inline const std::string kTanren = TANREN_BINARY;

class ExamplesTest : public ::testing::Test {
 protected:
  // A line that begins with tanren runs it as a fork.
  ShellResult go(const std::string& line) {
    const bool is_tanren = line.rfind(kTanren + " ", 0) == 0;
    const std::string forked = is_tanren ? forked_tanren() + line.substr(kTanren.size()) : line;
    return shell(forked, temporary_.path());
  }

  // Trains examples/<config> into the folder "run"; returns its summary.
  nlohmann::json trained(const std::string& program, const std::string& config) {
    const fs::path file = kExamples / config;
    const auto result = go(program + " run " + file.string() + " --out run" +
                           ci_options(file.parent_path() / "ci.toml"));
    EXPECT_EQ(result.code, 0) << result.output;
    if (result.code != 0) return {};
    return nlohmann::json::parse(read_file(temporary_.path() / "run" / "summary.json"));
  }

  TemporaryFolder temporary_;
};

}  // namespace tanren::testing
