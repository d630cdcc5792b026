// For tests of forks as a user makes them: what a run wrote, and refusals. Torch-free. Included by
// tests only.
#pragma once

#include "tests/support/command_run.h"

#include <map>

namespace tanren::testing {

class ForkRun : public CommandRun {
 protected:
  // Every file below `folder` with its bytes.
  std::map<std::string, std::string> files(const std::string& folder) const {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(at(folder))) {
      if (entry.is_regular_file()) found[entry.path().string()] = read_file(entry.path());
    }
    return found;
  }

  // The part of a plain log after `attempt` and its evaluation.
  std::string log_after(const std::string& out, int attempt) const {
    std::istringstream lines(plain_log(out));
    std::string text;
    bool is_after = false;
    for (std::string line; std::getline(lines, line);) {
      is_after = is_after || line.starts_with("{\"attempt\":" + std::to_string(attempt + 1) + ",");
      if (is_after) text += line + "\n";
    }
    return text;
  }

  // The plan's line `key`.
  std::string plan_line(const std::string& out, const std::string& key) const {
    std::istringstream lines(read_file(at(out) / "plan.txt"));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(key + " ")) return line;
    }
    return "";
  }

  void expect_refused(const std::string& arguments, const std::vector<std::string>& parts) {
    const auto result = tanren(arguments);
    EXPECT_EQ(result.code, 2) << arguments << "\n" << result.output;
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
    for (const auto& part : parts) TANREN_EXPECT_CONTAINS(result.output, part);
  }
};

}  // namespace tanren::testing
