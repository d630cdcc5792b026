// `tanren monitor` beside a training run: as lines, as JSON and on a terminal.
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tests/support/forked.h"
#include "tests/support/shell.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>

namespace tanren::testing {
namespace {

class MonitorVerb : public ::testing::Test {
 protected:
  // Runs the shell lines while a long run trains in "r"; $B is the program, $P the run's pid.
  ShellResult beside_a_run(const std::string& lines) const {
    folder_.file("run.toml", R"([run]
steps = 1000000
threads = 1
[model]
kind = "mlp"
hidden = [8]
[data.train]
kind = "csv"
path = "train.csv"
classes = 2
[batch]
global_batch = 4
[precision]
mode = "fp32"
)");
    folder_.file("train.csv", "label,a,b\n0,1,2\n1,3,4\n0,5,6\n1,7,8\n");
    return shell("B=" TANREN_BINARY
                 "; $B run run.toml --quiet --out r & P=$!; "
                 "for i in $(seq 400); do [ -s r/log.jsonl ] && break; sleep 0.05; done; " +
                     lines + "; kill -TERM $P; wait $P; echo run ended with $?",
                 folder_.path());
  }

  nlohmann::json json_of(const std::string& name) const {
    return nlohmann::json::parse(read_file(folder_.path() / name));
  }

  TemporaryFolder folder_;
};

TEST_F(MonitorVerb, refuses_bad_intervals_and_unknown_flags_in_one_line) {
  for (const char* bad : {"0", "-1", "0.05", "3601", "nan", "inf", "soon", "1s"}) {
    const auto result =
        shell(forked_tanren() + " monitor --once --interval=" + bad, folder_.path());
    EXPECT_EQ(result.code, 2) << bad;
    EXPECT_EQ(result.output,
              "[cli] --interval is \"" + std::string(bad) + "\"; give seconds from 0.1 to 3600\n");
  }
  const auto result = shell(forked_tanren() + " monitor --all", folder_.path());
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
}

TEST_F(MonitorVerb, one_look_finds_a_run_and_leaves_it_and_its_folder_alone) {
  const auto result = beside_a_run(
      "ls r > before; $B monitor --once --json > look.json; echo $?; "
      "$B monitor --once > look.txt; echo $?; ls r > after; cmp before after; echo pid $P");
  EXPECT_NE(result.output.find("run ended with 130"), std::string::npos) << result.output;
  const auto look = json_of("look.json");
  const auto own = std::filesystem::canonical(folder_.path() / "r").string();
  nlohmann::json run;
  for (const auto& candidate : look["runs"]) {
    if (candidate["folder"] == own) run = candidate;
  }
  ASSERT_TRUE(run.is_object()) << look.dump(2) << result.output;
  EXPECT_NE(result.output.find("pid " + std::to_string(run["pid"].get<int>()) + "\n"),
            std::string::npos)
      << result.output;
  EXPECT_EQ(run["total_steps"], 1000000);
  EXPECT_GT(run["log"]["step"], 0);
  EXPECT_TRUE(run["log"]["loss"].is_number());
  EXPECT_GT(run["log"]["samples_per_second"], 0);
  EXPECT_GT(run["seconds_left"], 0);
  EXPECT_GT(run["resident_bytes"], 1 << 20);
  EXPECT_TRUE(run["busy_cores"].is_number());
  EXPECT_GT(look["cpu"]["cores"], 0);
  EXPECT_GT(look["memory"]["available_bytes"], 0);
  const std::string text = read_file(folder_.path() / "look.txt");
  EXPECT_NE(text.find("/1000000"), std::string::npos) << text;
}

TEST_F(MonitorVerb, without_a_terminal_it_prints_lines_until_it_is_interrupted) {
  const auto result = shell(
      "B=" TANREN_BINARY
      "; $B monitor --interval 0.1 > lines & P=$!; $B monitor --json --interval 0.1 > json & Q=$!; "
      "for i in $(seq 400); do [ $(cat lines | wc -l) -ge 3 ] && [ $(cat json | wc -l) -ge 3 ] && "
      "break; sleep 0.05; done; kill -INT $P; kill -TERM $Q; wait $P; echo $?; wait $Q; echo $?",
      folder_.path());
  EXPECT_EQ(result.output, "0\n0\n");
  const std::string lines = read_file(folder_.path() / "lines");
  EXPECT_NE(lines.find("  cpu "), std::string::npos) << lines;
  EXPECT_EQ(lines.find('\x1b'), std::string::npos);
  const std::string json = read_file(folder_.path() / "json");
  EXPECT_TRUE(nlohmann::json::accept(json.substr(0, json.find('\n')))) << json;
}

TEST_F(MonitorVerb, on_a_terminal_it_refreshes_in_place_until_q_and_gives_the_terminal_back) {
  if (shell("script --version", folder_.path()).code != 0) GTEST_SKIP() << "no script(1) here";
  // A key that is sent early waits in the terminal.
  const auto result = shell("{ sleep 2; printf q; } | timeout 60 script -qec '" TANREN_BINARY
                            " monitor --interval 0.2' typed; echo code $?",
                            folder_.path());
  EXPECT_NE(result.output.find("\x1b[?1049h"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("q ends"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("\x1b[?1049l"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("code 0"), std::string::npos) << result.output;
}

}  // namespace
}  // namespace tanren::testing
