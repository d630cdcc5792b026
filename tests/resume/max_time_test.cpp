// run.max_time: a start saves and stops by then, on all ranks at the same step, and the same
// command resumes it (issue 26).
#include "tests/support/child.h"
#include "tests/support/command_run.h"
#include "tests/support/run_log.h"

#include <chrono>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;

class MaxTime : public CommandRun {
 protected:
  // Repeats `command` until a start no longer stops for lack of time. Returns the number of starts.
  int start_until_done(const std::string& command, const std::string& out) const {
    int starts = 0;
    for (int code = 130; code == 130 && starts < 20; ++starts) {
      const auto result = tanren(command);
      code = result.code;
      EXPECT_TRUE(code == 0 || code == 130) << result.output;
      if (code != 130) continue;
      const auto summary = nlohmann::json::parse(read_file(at(out) / "summary.json"));
      EXPECT_EQ(summary["status"], "stopped");
      EXPECT_EQ(summary["reason"], "run.max_time = 0.001");
      const std::string step = std::to_string(summary["steps"].get<int>());
      EXPECT_TRUE(fs::exists(at(out) / "checkpoints" / ("step-" + step) / "COMPLETE"));
    }
    return starts;
  }
};

TEST_F(MaxTime, that_is_over_at_once_still_makes_an_update_a_start_and_the_same_run) {
  ASSERT_EQ(tanren("run run.toml --quiet --out whole").code, 0);
  // The eighth start has no time for the last evaluation, so the ninth makes it.
  EXPECT_EQ(start_until_done("run run.toml --quiet --out out --set run.max_time=0.001", "out"), 9);
  EXPECT_EQ(plain_log("out"), plain_log("whole"));
  EXPECT_EQ(weights("out"), weights("whole"));
  EXPECT_FALSE(nlohmann::json::parse(read_file(at("out/summary.json"))).contains("reason"));
}

TEST_F(MaxTime, stops_all_ranks_at_one_step) {
  const std::string ranks = " --set parallel.ranks=threads --set parallel.replicas=3";
  ASSERT_EQ(tanren("run run.toml --quiet --out whole" + ranks).code, 0);
  const std::string start = "run run.toml --quiet --out out --set run.max_time=0.001" + ranks;
  // Each start makes two updates, because the second one tells the other ranks that the time is
  // over. The last start makes the evaluation.
  EXPECT_EQ(start_until_done(start, "out"), 5);
  EXPECT_EQ(plain_log("out"), plain_log("whole"));
  EXPECT_EQ(weights("out"), weights("whole"));
  ASSERT_EQ(
      tanren("launch -n 2 run run.toml --quiet --out processes --set run.max_time=0.001").code,
      130);
  const auto summary = nlohmann::json::parse(read_file(at("processes/summary.json")));
  EXPECT_EQ(summary["steps"], 2);
  EXPECT_EQ(summary["reason"], "run.max_time = 0.001");
  EXPECT_EQ(tanren("launch -n 2 run processes --quiet --set run.max_time=").code, 0);
}

TEST_F(MaxTime, ends_a_long_run_in_time_and_says_why) {
  const auto start = std::chrono::steady_clock::now();
  const auto result =
      tanren("run run.toml --out out --set run.steps=100000000 --set run.max_time=3s");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(result.code, 130) << result.output;
  EXPECT_LT(took.count(), 30);  // seconds on a busy machine
  EXPECT_GT(took.count(), 1);
  TANREN_EXPECT_CONTAINS(result.output, " (run.max_time = 3s); resume with: tanren run out");
  TANREN_EXPECT_CONTAINS(read_file(at("out/plan.txt")), "max_time");
  const auto steps = last_attempt("out")["step"].get<int>();
  EXPECT_GT(steps, 1);
  // The limit also applies to later starts, until it is removed.
  TANREN_EXPECT_CONTAINS(read_file(at("out/config.toml")), "max_time = \"3s\"");
  EXPECT_EQ(tanren("run out --quiet --set run.max_time=1s").code, 130);
  EXPECT_GT(last_attempt("out")["step"].get<int>(), steps);
}

TEST_F(MaxTime, leaves_a_run_alone_that_ends_before_it_or_is_stopped_by_a_signal) {
  EXPECT_EQ(tanren("run run.toml --quiet --out out --set run.max_time=1h").code, 0);
  EXPECT_EQ(nlohmann::json::parse(read_file(at("out/summary.json")))["status"], "finished");
  Child child({TANREN_BINARY, "run", at("run.toml").string(), "--quiet", "--out", at("b").string(),
               "--set", "run.steps=100000000", "--set", "run.max_time=1h"});
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  const auto has_stepped = [&] {
    std::error_code none;
    const auto size = fs::file_size(at("b/log.jsonl"), none);
    return !none && size > 0;
  };
  while (!has_stepped() && std::chrono::steady_clock::now() < end) {
    child.ended(std::chrono::milliseconds(10));
  }
  child.signal(SIGTERM);
  EXPECT_EQ(child.ended(std::chrono::minutes(2)), 130) << child.text();
  EXPECT_EQ(read_file(at("b/summary.json")).find("max_time"), std::string::npos);
}

}  // namespace
}  // namespace tanren::testing
