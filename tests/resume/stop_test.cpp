// Ends the real program at any moment: by the signals of `timeout`, a batch system, a closed
// terminal and a person; by a kill before any call that changes the run folder; and by closing its
// output. Each time the run has finished, can be resumed with the same log, or had not begun.
// TANREN_STOPS is the number of rounds, for scripts/soak.
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tests/parallel/launcher_process.h"
#include "tests/support/child.h"
#include "tests/support/forked.h"
#include "tests/support/run_log.h"
#include "tests/support/shell.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <algorithm>
#include <cstdlib>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

const std::string kTanren = TANREN_BINARY;
const std::string kTestProgram = TANREN_TEST_PROGRAM;
const std::string kPreload = std::string("LD_PRELOAD=") + TANREN_CRASH_POINTS;

std::string config_text(int64_t steps, int64_t every, const std::string& kind = "mlp") {
  const std::string data =
      "kind = \"synthetic\"\n"
      "fields = [\"inputs: float[8] in [-1, 1]\", \"labels: int[] in [0, 4]\"]\n";
  return "[run]\nseed = 7\nthreads = 1\nsteps = " + std::to_string(steps) + "\n[model]\nkind = \"" +
         kind +
         "\"\nhidden = [16]\ndropout = 0.2\n[data]\nworkers = 0\n"
         "[data.train]\nsamples = 64\n" +
         data + "[data.eval]\nsamples = 31\n" + data +
         "[batch]\nglobal_batch = 14\n[precision]\nmode = \"fp32\"\n[evaluate]\nevery = " +
         std::to_string(every) + "\n[checkpoint]\nevery = " + std::to_string(every) +
         "\n[metrics]\ntensorboard = false\n";
}

// The address sanitizer must be the first library that is loaded.
#ifdef __SANITIZE_ADDRESS__
#define TANREN_NEEDS_PRELOAD GTEST_SKIP() << "nothing can be preloaded before the address sanitizer"
#else
#define TANREN_NEEDS_PRELOAD static_cast<void>(0)
#endif

class Stop : public ::testing::Test {
 protected:
  Stop() {
    folder_.file("long.toml", config_text(6000, 1000));
    folder_.file("short.toml", config_text(7, 3));
  }

  static int64_t rounds(int64_t by_default) {
    const char* asked = std::getenv("TANREN_STOPS");
    return asked != nullptr ? std::atoi(asked) : by_default;
  }
  fs::path at(const std::string& name) const { return folder_.path() / name; }
  ShellResult go(const std::string& line) const { return shell(line, folder_.path()); }
  // Starts `line` with sh. It must end with exec, so that the child is the program.
  Child start(const std::string& line, const std::vector<std::string>& environment = {}) const {
    return Child({"/bin/sh", "-c", "cd '" + folder_.path().string() + "' && " + line}, environment);
  }
  void train(const std::string& config, const std::string& out,
             const std::string& program = forked_tanren()) const {
    const auto result = go(program + " run " + config + " --quiet --out " + out);
    ASSERT_EQ(result.code, 0) << result.output;
  }
  // Starts a run in which predict call number `call` (1 is the rehearsal) waits until go_on().
  Child start_waiting(const std::string& config, int64_t call, const std::string& out) const {
    fs::remove(at("wait0"));
    return start("exec " + kTestProgram + " run " + config + " --quiet --out " + out,
                 {"WAIT_AT=" + std::to_string(call), "WAIT_FILE=" + at("wait").string()});
  }
  bool waits() const {
    return comes_true([&] { return fs::exists(at("wait0")); });
  }
  void go_on() const { fs::remove(at("wait0")); }
  int64_t lines(const std::string& out) const {
    std::error_code none;
    if (!fs::exists(at(out) / "log.jsonl", none)) return 0;
    const std::string text = read_file(at(out) / "log.jsonl");
    return std::count(text.begin(), text.end(), '\n');
  }
  // The status in the summary; empty if there is no summary.
  std::string status(const std::string& out) const {
    if (!fs::exists(at(out) / "summary.json")) return "";
    return nlohmann::json::parse(read_file(at(out) / "summary.json")).value("status", "");
  }
  // Files that a killed writer leaves.
  std::vector<std::string> leftovers(const std::string& out) const {
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(at(out))) {
      if (contains(entry.path().filename().string(), ".tmp-")) found.push_back(entry.path());
    }
    return found;
  }
  // Waits until the log of `out` has more than `seen` lines.
  ::testing::AssertionResult grows(const std::string& out, int64_t seen, Child& child) const {
    if (comes_true([&] { return lines(out) > seen; })) return ::testing::AssertionSuccess();
    child.signal(SIGKILL);
    child.ended(seconds(5));
    return ::testing::AssertionFailure() << out << " does not grow: " << child.text();
  }

  // A run of long.toml that nothing disturbs, made once.
  fs::path long_run() const {
    static const TemporaryFolder folder;
    const fs::path run = folder.path() / "whole";
    if (!fs::exists(run)) train("long.toml", run);
    return run;
  }
  // Resumes `out`, an unfinished run of long.toml. Expects the log of long_run(), to the end or for
  // 300 more steps.
  void expect_goes_on(const std::string& out, bool to_the_end) const {
    if (to_the_end) {
      train(out, out);
      return expect_same_log(long_run(), at(out));
    }
    const auto seen = static_cast<size_t>(lines(out));
    train("long.toml --set run.stop_after=300", out);
    const auto whole = read_log(long_run()), log = read_log(at(out));
    ASSERT_TRUE(log.size() > seen || log.size() == whole.size()) << seen << " " << log.size();
    ASSERT_LE(log.size(), whole.size());
    for (size_t i = 0; i < log.size(); ++i) {
      expect_same_json(whole[i], log[i], "line " + std::to_string(i));
    }
  }

  TemporaryFolder folder_;
};

TEST_F(Stop, a_signal_saves_and_the_run_goes_on_with_the_same_log) {
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    fs::remove_all(at("cut"));
    Child child = start("exec " + kTanren + " run long.toml --quiet --out cut");
    ASSERT_TRUE(grows("cut", 20, child));
    child.signal(signal);
    EXPECT_EQ(child.ended(seconds(60)), 130) << signal << child.text();
    EXPECT_EQ(status("cut"), "stopped");
    expect_goes_on("cut", /*to_the_end=*/signal == SIGTERM);
  }
}

// `timeout` signals its child and then their process group, within microseconds. Sending it SIGALRM
// ends its time at a moment that does not depend on a clock.
TEST_F(Stop, what_timeout_sends_twice_is_one_wish_and_the_run_can_go_on) {
  if (!contains(go("timeout --version").output, "coreutils")) GTEST_SKIP() << "no timeout(1) here";
  for (const std::string signal : {"TERM", "INT", "HUP"}) {
    fs::remove_all(at("cut"));
    const int64_t num_rounds = rounds(signal == "TERM" ? 3 : 1);
    int64_t seen = 0, resumable = 0, finished = 0;
    for (int64_t i = 0; i < num_rounds; ++i) {
      Child child = start("exec timeout --preserve-status -s " + signal + " 1000 " + kTanren +
                          " run long.toml --quiet --out cut");
      ASSERT_TRUE(grows("cut", seen, child));
      child.signal(SIGALRM);
      const int code = child.ended(seconds(60));
      ASSERT_TRUE(code == 130 || code == 0) << signal << " ended it with " << code << child.text();
      EXPECT_EQ(status("cut"), code == 130 ? "stopped" : "finished");
      seen = code == 130 ? lines("cut") : 0;
      ++(code == 130 ? resumable : finished);
      if (code == 130) continue;
      expect_same_log(long_run(), at("cut"));
      fs::remove_all(at("cut"));
    }
    std::printf("timeout -s %s, %ld times: %ld resumable, %ld had finished\n", signal.c_str(),
                num_rounds, resumable, finished);
    if (status("cut") != "stopped") continue;
    expect_goes_on("cut", /*to_the_end=*/signal == "TERM");
  }
}

TEST_F(Stop, is_told_by_the_help_of_the_verbs_that_run) {
  for (const char* verb : {"run", "launch"}) {
    TANREN_EXPECT_CONTAINS(go(forked_tanren() + " " + verb + " --help").output,
                           "Ctrl-C, SIGTERM, SIGHUP and run.max_time save and stop: exit code 130");
  }
}

TEST_F(Stop, only_a_second_interrupt_of_a_person_ends_at_once) {
  // A stop request is handled after the batch, which does not end here.
  folder_.file("waiting.toml", config_text(10, 1, "waiting"));
  Child child = start_waiting("waiting.toml", 2, "busy");
  ASSERT_TRUE(waits()) << child.text();
  for (const int signal : {SIGTERM, SIGTERM, SIGHUP, SIGTERM, SIGINT, SIGINT, SIGHUP, SIGTERM}) {
    child.signal(signal);
    EXPECT_FALSE(child.await("nothing", std::chrono::milliseconds(20)));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  child.signal(SIGTERM);
  EXPECT_EQ(child.ended(std::chrono::milliseconds(300)), -1) << child.text();
  child.signal(SIGINT);
  EXPECT_EQ(child.ended(seconds(10)), 128 + SIGINT);
  EXPECT_EQ(status("busy"), "") << "it was to end at once";
}

// Issue 22: the run waited silently for the end of the evaluation.
TEST_F(Stop, a_signal_breaks_an_evaluation_off_which_the_next_start_makes_first) {
  folder_.file("waiting.toml", config_text(3, 1, "waiting"));
  train("waiting.toml", "whole", forked(kTestProgram, kTestProgram));
  Child child = start_waiting("waiting.toml", 2, "cut");  // the first of three batches
  ASSERT_TRUE(waits()) << child.text();
  child.signal(SIGINT);
  EXPECT_TRUE(child.await("[run] a signal came: it saves and stops", seconds(60))) << child.text();
  go_on();
  EXPECT_EQ(child.ended(seconds(60)), 130) << child.text();
  EXPECT_EQ(lines("cut"), 1) << "of an evaluation that was broken off there is nothing to tell";
  EXPECT_TRUE(fs::exists(at("cut") / "checkpoints" / "step-1" / "COMPLETE"));
  train("cut", "cut", forked(kTestProgram, kTestProgram));
  expect_same_log(at("whole"), at("cut"));
}

TEST_F(Stop, before_the_last_evaluation_all_is_saved_and_the_next_start_makes_it) {
  folder_.file("waiting.toml", config_text(2, 0, "waiting"));
  train("waiting.toml", "whole", forked(kTestProgram, kTestProgram));
  for (const int signal : {SIGINT, SIGKILL}) {
    fs::remove_all(at("cut"));
    Child child = start_waiting("waiting.toml", 2, "cut");
    ASSERT_TRUE(waits()) << child.text();
    EXPECT_TRUE(fs::exists(at("cut/checkpoints/step-2/COMPLETE")))
        << "the training is saved before it is evaluated";
    child.signal(signal);
    if (signal == SIGINT) {
      EXPECT_TRUE(child.await("[run] a signal came", seconds(60)));
    }
    go_on();
    EXPECT_EQ(child.ended(seconds(60)), signal == SIGINT ? 130 : 128 + SIGKILL) << child.text();
    ASSERT_EQ(lines("cut"), 2);
    const auto again = go(forked(kTestProgram, kTestProgram) + " run cut --json");
    ASSERT_EQ(again.code, 0) << again.output;
    expect_same_log(at("whole"), at("cut"));
    const auto summary = nlohmann::json::parse(again.output);
    const auto wanted = nlohmann::json::parse(read_file(at("whole") / "summary.json"));
    EXPECT_EQ(summary["final_loss"], wanted["final_loss"]);
    EXPECT_EQ(summary["evaluate.accuracy"], wanted["evaluate.accuracy"]);
  }
}

// Issue 22: the run printed that it stops, but finished. The summary is the last file that a run
// writes.
TEST_F(Stop, a_signal_when_only_the_weights_are_still_written_is_told_so) {
  TANREN_NEEDS_PRELOAD;
  const std::string run = " run short.toml --quiet --out ";
  const auto counted = go(kPreload + " POINTS_COUNT=count " + kTanren + run + "counted");
  ASSERT_EQ(counted.code, 0) << counted.output;
  Child child = start("exec " + kTanren + run + "cut",
                      {kPreload, "POINTS_AT=" + std::to_string(read_file(at("count")).size()),
                       "POINTS_SIGNAL=" + std::to_string(SIGTERM)});
  EXPECT_EQ(child.ended(seconds(60)), 0) << child.text();
  EXPECT_EQ(child.text(),
            "[run] a signal came: the run is finished and saved, and ends when its weights are "
            "written\n");
  EXPECT_EQ(status("cut"), "finished");
}

TEST_F(Stop, a_hang_up_that_is_ignored_as_under_nohup_stays_so) {
  Child child = start("trap '' HUP; exec " + kTanren + " run long.toml --quiet --out out");
  ASSERT_TRUE(grows("out", 0, child));
  child.signal(SIGHUP);
  EXPECT_EQ(child.ended(seconds(60)), 0) << child.text();
  EXPECT_EQ(status("out"), "finished");
}

// (2000 lines are more than a pipe holds.)
TEST_F(Stop, a_run_whose_output_nobody_reads_any_more_goes_on) {
  const auto run = go("{ " + kTanren +
                      " run long.toml --out out --set metrics.console_every=1 "
                      "--set run.steps=2000; echo $? > code; } | head -n 1; cat code");
  EXPECT_EQ(run.output.substr(run.output.find('\n') + 1), "0\n") << run.output;
  EXPECT_EQ(status("out"), "finished");
  const auto summary = go(kTanren + " summary out | head -c 1 > /dev/null");
  EXPECT_EQ(summary.output, "");
}

// Ends runs at moments that are spread over a whole run, from the first entry of its folder on.
TEST_F(Stop, at_any_moment_leaves_a_run_that_goes_on_or_has_finished) {
  TANREN_NEEDS_PRELOAD;
  train("short.toml", "whole");
  const auto counted = go("POINTS_COUNT=count " + forked_tanren() +
                          " run short.toml --quiet --out counted; ls -d counted");
  ASSERT_EQ(counted.output, "counted\n");
  const auto num_calls = std::ssize(read_file(at("count")));
  ASSERT_GT(num_calls, 50);
  for (const int signal : {SIGKILL, SIGTERM}) {
    const int64_t num_rounds = std::min(rounds(7), num_calls);
    for (int64_t i = 0; i < num_rounds; ++i) {
      const int64_t call = 1 + i * num_calls / num_rounds + (num_calls / num_rounds) / 2;
      const std::string where =
          "signal " + std::to_string(signal) + " at call " + std::to_string(call);
      fs::remove_all(at("cut"));
      Child child = start("exec " + forked_tanren() + " run short.toml --quiet --out cut",
                          {"POINTS_AT=" + std::to_string(call),
                           "POINTS_SIGNAL=" + std::to_string(signal), "POINTS_NO_EXCHANGE=1"});
      const int code = child.ended(seconds(60));
      if (signal == SIGKILL) {
        EXPECT_EQ(code, 128 + SIGKILL) << where;
      } else {
        EXPECT_TRUE(code == 130 || code == 0) << where << ": " << code << child.text();
        EXPECT_EQ(code == 0, status("cut") == "finished") << where;
      }
      if (status("cut") != "finished") train("short.toml", "cut");
      ASSERT_FALSE(HasFailure()) << where;
      expect_same_log(at("whole"), at("cut"));
      EXPECT_EQ(leftovers("cut"), std::vector<std::string>{}) << where;
    }
  }
}

// Issue 21: the folder was refused as "no run" from then on.
TEST_F(Stop, a_kill_during_the_first_write_leaves_a_folder_that_is_empty_to_the_next_start) {
  TANREN_NEEDS_PRELOAD;
  for (int64_t call = 1; call <= 7; ++call) {
    fs::remove_all(at("cut"));
    Child child = start("exec " + forked_tanren() + " run short.toml --quiet --out cut",
                        {"POINTS_AT=" + std::to_string(call)});
    ASSERT_EQ(child.ended(seconds(60)), 128 + SIGKILL) << call;
    const auto next =
        go(forked_tanren() + " run short.toml --quiet --out cut --set run.stop_after=1");
    ASSERT_EQ(next.code, 0) << call << next.output;
    EXPECT_EQ(leftovers("cut"), std::vector<std::string>{}) << call;
  }
}

TEST_F(Stop, leftovers_go_with_the_next_start_and_what_is_not_ours_or_in_work_stays) {
  fs::create_directories(at("out"));
  for (const char* name : {"lock", "config.toml.tmp-4242", ".tmp-config.toml-a1b2c3d4"}) {
    folder_.file(std::string("out/") + name, "");
  }
  const auto first =
      go(forked_tanren() + " run short.toml --quiet --out out --set run.stop_after=1");
  ASSERT_EQ(first.code, 0) << first.output;
  EXPECT_EQ(leftovers("out"), std::vector<std::string>{});
  const std::string in_work = folder_.file("out/.tmp-summary.json-a1b2c3d4", "");
  folder_.file("out/.tmp-mine", "");
  fs::create_directories(at("out") / "checkpoints" / ".tmp-step-5-a1b2c3d4" / "deep");
  const int writer = ::open(in_work.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(writer, LOCK_EX | LOCK_NB), 0);
  train("short.toml", "out");
  ::close(writer);
  auto left = leftovers("out");
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<std::string>{at("out") / ".tmp-mine", in_work}));
}

TEST_F(Stop, a_file_system_without_locks_costs_a_warning) {
  TANREN_NEEDS_PRELOAD;
  const auto run = go(kPreload + " POINTS_FLOCK_ERRNO=" + std::to_string(ENOLCK) + " " + kTanren +
                      " run short.toml --quiet --out out");
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_EQ(run.output,
            "[run] cannot lock out (No locks available), so nothing keeps a second process out of "
            "it; start no other run there\n");
  fs::create_directories(at("taken"));
  const int lock = ::open((at("taken") / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  const auto refused = go(forked_tanren() + " run short.toml --quiet --out taken");
  ::close(lock);
  EXPECT_EQ(refused.code, 2);
  TANREN_EXPECT_CONTAINS(refused.output, "taken is in use by another process");
}

TEST_F(Stop, a_signal_before_the_first_update_ends_at_once) {
  TANREN_NEEDS_PRELOAD;
  // Call 1 creates the run folder.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    Child child = start("exec " + kTanren + " run long.toml --quiet --out out",
                        {kPreload, "POINTS_AT=2", "POINTS_SIGNAL=" + std::to_string(signal)});
    EXPECT_EQ(child.ended(seconds(60)), 130);
    EXPECT_EQ(
        child.text(),
        "[run] stopped by a signal before an update of this start; start it again the same way\n");
    EXPECT_FALSE(fs::exists(at("out") / "log.jsonl"));
  }
}

}  // namespace
}  // namespace tanren::testing
