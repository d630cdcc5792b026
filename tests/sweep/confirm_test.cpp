// sweep.confirm as a user sees it: after the search, runs with other seeds, paired with runs of the
// file's own values. They survive a kill. Also what a sweep shows before and while it runs: the
// plan's line and the live table.
#include "tests/sweep/sweep_run.h"

#include <csignal>
#include <map>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

class SweepConfirm : public SweepRun {
 protected:
  // Two trials, whose seeds follow the config's 3.
  void write_two(const std::string& keys) {
    write("two", "sampler = \"grid\"\n" + keys,
          dimension("optimizer.learning_rate", "values = [0.1, 0.01]"));
  }
  static std::string place(const nlohmann::json& run) {
    const std::string whose =
        run["trial"].is_null() ? "file" : trial(run["trial"].get<int64_t>()).substr(8);
    return "/confirm/" + whose + "-seed-" + std::to_string(run["seed"].get<int64_t>());
  }
};

TEST_F(SweepConfirm, trains_the_best_and_the_file_with_other_seeds_as_ordinary_runs) {
  write_two("confirm = 2");
  const auto result = tanren("sweep two.toml --out s");
  ASSERT_EQ(result.code, 0) << result.output;
  TANREN_EXPECT_CONTAINS(result.output, "the file, seed 4: begins\n");
  TANREN_EXPECT_CONTAINS(result.output, "THE BEST WITH OTHER SEEDS\n");
  TANREN_EXPECT_CONTAINS(result.output, " loss over the file, ");
  TANREN_EXPECT_CONTAINS(read_file(at("s/leaderboard.txt")), " loss over the file, ");
  EXPECT_EQ(result.output.find('\x1b'), std::string::npos);  // no terminal
  const auto all = trials("s");
  const auto confirmation = leaderboard("s")["confirmation"];
  ASSERT_EQ(confirmation["runs"].size(), 6u);
  std::map<int64_t, std::vector<double>> values;  // by trial; -1: the file
  int64_t num_runs = 0;
  for (const auto& run : confirmation["runs"]) {
    EXPECT_EQ(run["state"], "finished");
    EXPECT_EQ(run["step"], 8);
    const bool is_file = run["trial"].is_null();
    const auto id = is_file ? -1 : run["trial"].get<int64_t>();
    values[id].push_back(run["value"].get<double>());
    const std::string alone = "alone" + std::to_string(num_runs++);
    const std::string seed = std::to_string(run["seed"].get<int64_t>());
    const std::string more = is_file ? "" : sets(all[static_cast<size_t>(id)]);
    ASSERT_EQ(tanren("run run.toml --quiet --set run.seed=" + seed + " --out " + alone + more).code,
              0);
    EXPECT_EQ(plain_log("s" + place(run)), plain_log(alone));
    EXPECT_FALSE(fs::exists(at("s" + place(run)) / "checkpoints"));
    EXPECT_FALSE(fs::exists(at("s" + place(run)) / "model.safetensors"));
  }
  EXPECT_NE(values[-1][0], values[-1][1]);  // another seed is another run
  ASSERT_EQ(confirmation["trials"].size(), 2u);
  for (const auto& one : confirmation["trials"]) {
    const auto& own = values[one["trial"].get<int64_t>()];
    const double mean = (own[0] - values[-1][0] + own[1] - values[-1][1]) / 2;
    EXPECT_NEAR(one["mean"].get<double>(), mean, 1e-12);
    EXPECT_EQ(one["pairs"], 2);
  }
  TANREN_EXPECT_CONTAINS(read_file(at("s/sweep.html")), "<h2>The best with other seeds</h2>");
  // Nothing is left to do, until more seeds are asked for.
  const auto again = tanren("sweep s");
  EXPECT_EQ(again.output.find("begins"), std::string::npos) << again.output;
  ASSERT_EQ(tanren("sweep s --quiet --set sweep.confirm=3").code, 0);
  EXPECT_EQ(leaderboard("s")["confirmation"]["runs"].size(), 9u);
}

TEST_F(SweepConfirm, leaves_out_a_trial_that_has_the_values_of_the_file) {
  write_two("confirm = 2");
  ASSERT_EQ(tanren("sweep two.toml --quiet --out s --set optimizer.learning_rate=0.1").code, 0);
  const auto confirmation = leaderboard("s")["confirmation"];
  EXPECT_EQ(confirmation["runs"].size(), 4u);
  ASSERT_EQ(confirmation["trials"].size(), 1u);
  EXPECT_EQ(confirmation["trials"][0]["trial"], 1);
}

TEST_F(SweepConfirm, that_was_killed_goes_on_as_the_undisturbed_one) {
  write_two("confirm = 2");
  const std::string set = " --set run.steps=12 --set checkpoint.every=3";
  ASSERT_EQ(tanren("sweep two.toml --quiet --out whole" + set).code, 0);
  Child sweep = start(TANREN_BINARY, {"sweep", at("two.toml"), "--quiet", "--out", at("s"), "--set",
                                      "run.steps=12", "--set", "checkpoint.every=3"});
  ASSERT_TRUE(soon([&] { return fs::exists(at("s/confirm/0000-seed-4/log.jsonl")); }));
  sweep.signal(SIGKILL);
  const int code = sweep.ended(seconds(60));
  ASSERT_TRUE(code == 128 + SIGKILL || code == 0) << code << sweep.text();
  const auto last = tanren("sweep s --quiet");
  ASSERT_EQ(last.code, 0) << last.output;
  EXPECT_EQ(read_file(at("s/leaderboard.json")), read_file(at("whole/leaderboard.json")));
  const nlohmann::json board = leaderboard("s");
  ASSERT_EQ(board["confirmation"]["runs"].size(), 6u);
  for (const auto& run : board["confirmation"]["runs"]) {
    EXPECT_EQ(plain_log("s" + place(run)), plain_log("whole" + place(run))) << run;
  }
}

TEST_F(SweepConfirm, says_which_run_crashed_and_leaves_out_its_pair) {
  write("one", "sampler = \"grid\"\nconfirm = 2",
        dimension("optimizer.learning_rate", "values = [0.01]"));
  Child sweep = start(TANREN_BINARY, {"sweep", at("one.toml"), "--out", at("s"), "--set",
                                      "run.steps=10000", "--set", "evaluate.every=5000"});
  ASSERT_TRUE(soon([&] {
    std::error_code none;
    return fs::file_size(at("s/confirm/file-seed-4/log.jsonl"), none) > 100 && !none;
  }));
  const auto processes = trial_processes(sweep.pid());
  ASSERT_EQ(processes.size(), 1u);
  ::kill(processes[0], SIGKILL);
  ASSERT_EQ(sweep.ended(seconds(120)), 0) << sweep.text();
  TANREN_EXPECT_CONTAINS(sweep.text(), "the file, seed 4: crashed: signal 9 (Killed)\n");
  TANREN_EXPECT_CONTAINS(sweep.text(),
                         "the file, seed 4: crashed (signal 9 (Killed)); its pairs are left out");
  const auto confirmation = leaderboard("s")["confirmation"];
  EXPECT_EQ(confirmation["runs"][0]["state"], "crashed");
  EXPECT_EQ(confirmation["trials"][0]["pairs"], 1);
  EXPECT_TRUE(confirmation["trials"][0]["p"].is_null());
  EXPECT_TRUE(confirmation["trials"][0]["verdict"].is_null());
}

TEST_F(SweepConfirm, is_in_the_line_of_the_plan) {
  write_two("confirm = 2\nconcurrent = 2");
  const auto plan = tanren("plan two.toml");
  ASSERT_EQ(plan.code, 0) << plan.output;
  TANREN_EXPECT_CONTAINS(plan.output, "2 trials, 2 at a time");
  TANREN_EXPECT_CONTAINS(plan.output,
                         "by grid; at most 16 steps, then 6 runs of 8 steps to confirm");
  EXPECT_EQ(tanren("plan run.toml").output.find("trials"), std::string::npos);
  EXPECT_FALSE(fs::exists(at("sweeps")));
}

TEST_F(SweepConfirm, on_a_terminal_shows_the_running_trials_below_the_lines) {
  if (shell("script --version", folder_.path()).code != 0) GTEST_SKIP() << "no script(1) here";
  write_two("");
  const auto result = shell("timeout 120 script -qec '" TANREN_BINARY
                            " sweep two.toml --out s' typed </dev/null; echo code $?",
                            folder_.path());
  TANREN_EXPECT_CONTAINS(result.output, "code 0");
  TANREN_EXPECT_CONTAINS(result.output, "trial 0000: begins until step 8: ");
  TANREN_EXPECT_CONTAINS(result.output, "step  loss  values");
  const size_t drawn = result.output.find("\x1b[J"), cleared = result.output.rfind("A\x1b[J");
  ASSERT_NE(cleared, std::string::npos) << result.output;
  EXPECT_LT(drawn, cleared);
  // The screen finally shows the same text as other outputs.
  TANREN_EXPECT_CONTAINS(result.output.substr(cleared), "TRIALS BY LOSS");
}

}  // namespace
}  // namespace tanren::testing
