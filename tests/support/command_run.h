// For tests of runs as a user starts them: the real program, as forks (forked.h), on a small
// classifier of a CSV file, in a folder of the test's own. Torch-free. Included by tests only.
#pragma once

#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tests/support/forked.h"
#include "tests/support/shell.h"

#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace tanren::testing {

class CommandRun : public ::testing::Test {
 protected:
  CommandRun() {
    folder_.file("run.toml", config("train.csv", "eval.csv"));
    folder_.file("train.csv", rows(24));
    folder_.file("eval.csv", rows(9));
  }

  static std::string config(const std::string& train, const std::string& eval) {
    return "[run]\nsteps = 8\nthreads = 1\nseed = 3\n[model]\nkind = \"mlp\"\nhidden = [8]\n"
           "[data.train]\nkind = \"csv\"\npath = \"" +
           train + "\"\nclasses = 3\n[data.eval]\nkind = \"csv\"\npath = \"" + eval +
           "\"\nclasses = 3\n[batch]\nglobal_batch = 4\n[precision]\nmode = \"fp32\"\n"
           "[evaluate]\nevery = 4\n";
  }
  static std::string rows(int count, int first_label = 0) {
    std::string text = "label,a,b\n";
    for (int i = 0; i < count; ++i) {
      const int label = i == 0 ? first_label : i % 3;
      text += std::to_string(label) + "," + std::to_string(i) + ",0.5\n";
    }
    return text;
  }

  std::filesystem::path at(const std::string& name) const { return folder_.path() / name; }
  ShellResult tanren(const std::string& arguments) const {
    return shell(forked_tanren() + " " + arguments, folder_.path());
  }
  void stop_after(const std::string& out, int steps, const std::string& more = "") const {
    const auto result = tanren("run run.toml --quiet --out " + out +
                               " --set run.stop_after=" + std::to_string(steps) + " " + more);
    ASSERT_EQ(result.code, 0) << result.output;
  }
  void expect_code(const std::string& arguments, int code,
                   const std::vector<std::string>& parts) const {
    const auto result = tanren(arguments);
    EXPECT_EQ(result.code, code) << arguments << "\n" << result.output;
    for (const auto& part : parts) TANREN_EXPECT_CONTAINS(result.output, part);
  }
  std::vector<nlohmann::json> log(const std::string& out) const {
    std::vector<nlohmann::json> lines;
    std::istringstream text(read_file(at(out) / "log.jsonl"));
    for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  nlohmann::json last_attempt(const std::string& out) const {
    const auto lines = log(out);
    return *std::find_if(lines.rbegin(), lines.rend(),
                         [](const auto& line) { return line.contains("attempt"); });
  }
  // The log without its timings.
  std::string plain_log(const std::string& out) const {
    static const std::regex timing(R"(,"timing":\{[^}]*\})");
    return std::regex_replace(read_file(at(out) / "log.jsonl"), timing, "");
  }
  // The tensors without the header, which names the config.
  std::string weights(const std::string& out) const {
    const std::string file = read_file(at(out) / "model.safetensors");
    uint64_t header = 0;
    std::memcpy(&header, file.data(), sizeof(header));
    return file.substr(sizeof(header) + header);
  }

  TemporaryFolder folder_;
};

}  // namespace tanren::testing
