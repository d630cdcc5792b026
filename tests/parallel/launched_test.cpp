// Whole runs on ranks that are processes, started as a user does: the log equals that of one
// process; killed ranks; signals; ranks that were started differently; and the draws of torch's own
// generator.
#include "tests/parallel/launcher_process.h"
#include "tests/support/child.h"
#include "tests/support/forked.h"
#include "tests/support/run_log.h"
#include "tests/support/shell.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <random>
#include <regex>
#include <thread>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;

const std::string kTanren = TANREN_BINARY;
const std::string kTestProgram = TANREN_TEST_PROGRAM;

// 64 samples in batches of 14, so that the last batch of an epoch has 8. 31 evaluated samples,
// which neither 2 nor 3 ranks divide evenly.
std::string config_text(const std::string& model, int64_t steps, int64_t every) {
  const std::string data =
      "kind = \"synthetic\"\n"
      "fields = [\"inputs: float[1,8,8] in [-1, 1]\", \"labels: int[] in [0, 4]\"]\n";
  return "[run]\nseed = 7\nthreads = 1\nsteps = " + std::to_string(steps) + "\n[model]\n" + model +
         "\n[data]\nworkers = 0\n[data.train]\nsamples = 64\n" + data +
         "[data.eval]\nsamples = 31\n" + data +
         "[batch]\nglobal_batch = 14\n[precision]\nmode = \"fp64\"\n"
         "[optimizer]\nlearning_rate = 0.003\n[schedule]\nkind = \"cosine\"\n[clip]\nnorm = 1.0\n"
         "[evaluate]\nmetrics = [\"accuracy\", \"f1_macro\", \"auroc\"]\nevery = " +
         std::to_string(every) + "\n[checkpoint]\nevery = " + std::to_string(every) +
         "\n[metrics]\ntensorboard = false\n[parallel]\npatience = 60\ncheck_every = 5\n";
}

const std::string kMlp = "kind = \"mlp\"\nhidden = [16, 16]\ndropout = 0.2";

class Launched : public ::testing::Test {
 protected:
  Launched() { folder_.file("run.toml", config_text(kMlp, 24, 10)); }

  fs::path at(const std::string& name) const { return folder_.path() / name; }
  ShellResult go(const std::string& line) const { return shell(line, folder_.path()); }
  // Removes the line that a machine with too few cores prints first.
  ShellResult launch(int ranks, const std::string& rest, const std::string& before = "") const {
    const std::string line = " launch -n " + std::to_string(ranks) + " " + rest;
    auto result = go(before + " " + forked_tanren() + line);
    static const std::regex few_cores("^\\[launch\\] [0-9]+ ranks share [^\n]*\n");
    result.output = std::regex_replace(result.output, few_cores, "");
    return result;
  }
  void train_alone(const std::string& config, const std::string& out) const {
    const auto result = go(forked_tanren() + " run " + config + " --quiet --out " + out);
    ASSERT_EQ(result.code, 0) << result.output;
  }
  // A run of `config` on one process, made once for the tests that have the same config.
  fs::path alone(const std::string& config) const {
    static const TemporaryFolder folder;
    static std::map<std::string, fs::path> runs;  // by the text of the config
    auto& run = runs[read_file(at(config))];
    if (run.empty()) train_alone(config, run = folder.path() / std::to_string(runs.size()));
    return run;
  }
  int64_t lines(const std::string& out) const {
    if (!fs::exists(at(out) / "log.jsonl")) return 0;
    const std::string text = read_file(at(out) / "log.jsonl");
    return std::count(text.begin(), text.end(), '\n');
  }
  // The number of steps in the log, which also has a line for each evaluation.
  int64_t steps(const std::string& out) const {
    const std::string text = read_file(at(out) / "log.jsonl");
    static const std::regex step(R"(\{"attempt":)");
    return std::distance(std::sregex_iterator(text.begin(), text.end(), step), {});
  }
  int64_t last_checkpoint(const std::string& out) const {
    return testing::last_checkpoint(at(out));
  }
  // The process of each rank, as printed by rank 0.
  static std::map<int, pid_t> ranks_of(const std::string& told) {
    std::map<int, pid_t> ranks;
    static const std::regex line("rank ([0-9]+) of [0-9]+: [^\n]*process ([0-9]+)");
    for (std::sregex_iterator found(told.begin(), told.end(), line), end; found != end; ++found) {
      ranks[std::stoi((*found)[1])] = std::stoi((*found)[2]);
    }
    return ranks;
  }
  // Expects exit code `code` and a single line that matches `line`. Under AddressSanitizer the
  // ranks may end further apart than the launcher waits. It then shows the line of each rank.
  static void expect_line(const ShellResult& result, int code, const std::string& line) {
    EXPECT_EQ(result.code, code) << result.output;
    std::string expected = line + "\n";
#ifdef __SANITIZE_ADDRESS__
    expected = "(" + expected + ")|((\\[rank [0-9]\\] " + expected + ")+\\[launch\\][^\n]*\n)";
#endif
    EXPECT_TRUE(std::regex_match(result.output, std::regex(expected))) << result.output;
  }

  TemporaryFolder folder_;
};

TEST_F(Launched, two_three_and_four_ranks_write_the_log_of_one_process) {
  const fs::path one = alone("run.toml");
  for (const int ranks : {2, 3, 4}) {
    const std::string out = "ranks" + std::to_string(ranks);
    const auto result = launch(ranks, "run run.toml --out " + out);
    ASSERT_EQ(result.code, 0) << result.output;
    const auto told = ranks_of(result.output);
    EXPECT_EQ(std::ssize(told), ranks) << result.output;
    TANREN_EXPECT_CONTAINS(result.output, "finished: 24 steps");
    EXPECT_EQ(result.output.find("finished"), result.output.rfind("finished"));
    expect_same_log(one, at(out));
    EXPECT_EQ(last_checkpoint(out), 24);
  }
}

TEST_F(Launched, accumulation_of_a_gpt_and_sharded_batches_of_tokens_agree_too) {
  folder_.file(
      "gpt.toml",
      "[run]\nseed = 3\nthreads = 1\nsteps = 12\n[model]\nkind = \"gpt2\"\nnum_layers = 2\n"
      "num_heads = 2\nhidden_size = 16\ncontext_length = 12\ndropout = 0.1\n"
      "[data]\nworkers = 1\n[data.train]\nkind = \"synthetic\"\nsamples = 40\n"
      "fields = [\"inputs: int[12] in [0, 22]\", \"labels: int[12] in [0, 22]\"]\n"
      "[batch]\nglobal_batch = 12\n[precision]\nmode = \"fp64\"\n[clip]\nnorm = 0.5\n"
      "[metrics]\ntensorboard = false\n[parallel]\npatience = 60\nbucket_mb = 0.01\n"
      "first_bucket_mb = 0.001\n");
  const auto result = launch(3, "run gpt.toml --quiet --out three --set batch.microbatch=2");
  ASSERT_EQ(result.code, 0) << result.output;
  expect_same_log(alone("gpt.toml"), at("three"));
}

TEST_F(Launched, two_stages_of_two_replicas_write_the_log_of_one_process) {
  const fs::path one = alone("run.toml");
  const auto result = launch(4, "run run.toml --out mesh --set parallel.pipeline=2");
  ASSERT_EQ(result.code, 0) << result.output;
  EXPECT_EQ(ranks_of(result.output).size(), 4U) << result.output;
  TANREN_EXPECT_CONTAINS(result.output, "rank 1 of 4: stage 1 of 2");
  TANREN_EXPECT_CONTAINS(result.output, "rank 2 of 4: stage 2 of 2");
  expect_same_log(one, at("mesh"));
  EXPECT_EQ(last_checkpoint("mesh"), 24);
  // The whole model, on any number of ranks.
  const auto of_alone = go(forked_tanren() + " eval " + one.string() + " --json");
  ASSERT_EQ(of_alone.code, 0) << of_alone.output;
  const auto expected = nlohmann::json::parse(of_alone.output);
  const auto of_one = go(forked_tanren() + " eval mesh --json");
  for (const auto& evaluated : {of_one, launch(3, "eval mesh --json")}) {
    ASSERT_EQ(evaluated.code, 0) << evaluated.output;
    auto of_mesh = nlohmann::json::parse(evaluated.output);
    for (const auto& [key, value] : expected.items()) {  // each names its own folder
      if (value.is_string()) of_mesh[key] = value;
    }
    expect_same_json(expected, of_mesh, "eval");
  }
}

TEST_F(Launched, ranks_that_stages_do_not_divide_are_refused) {
  const auto three = launch(3, "run run.toml --out none --set parallel.pipeline=2");
  EXPECT_EQ(three.code, 2) << three.output;
  TANREN_EXPECT_CONTAINS(three.output,
                         "parallel.pipeline is 2, which does not divide the 3 ranks; start 2 or 4");
  const auto one = go(forked_tanren() + " run run.toml --out none --set parallel.pipeline=2");
  EXPECT_EQ(one.code, 2) << one.output;
  TANREN_EXPECT_CONTAINS(one.output, "tanren launch -n 2 run");
}

// Uses a separate process for each run, so that its peak is the run's.
TEST_F(Launched, a_summary_foretells_the_peak_of_all_replicas_of_the_process) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer is the allocator: nobody counts what tensors hold";
#endif
  folder_.file(
      "gpt.toml",
      "[run]\nthreads = 1\nsteps = 4\n[model]\nkind = \"gpt2\"\nnum_layers = 2\nnum_heads = 2\n"
      "hidden_size = 32\ncontext_length = 64\n[data.train]\nkind = \"synthetic\"\nsamples = 60\n"
      "fields = [\"inputs: int[64] in [0, 22]\", \"labels: int[64] in [0, 22]\"]\n"
      "[batch]\nglobal_batch = 12\n[precision]\nmode = \"fp32\"\n[metrics]\ntensorboard = false\n"
      "[memory]\nallocator = \"cached\"\n[parallel]\ndata = \"threads\"\n");
  for (const std::string replicas : {"1", "2", "3"}) {
    const auto result = go(forked_tanren() + " run gpt.toml --quiet --out " + replicas +
                           " --set parallel.replicas=" + replicas);
    ASSERT_EQ(result.code, 0) << result.output;
    const auto summary = nlohmann::json::parse(read_file(at(replicas) / "summary.json"));
    ASSERT_TRUE(summary.contains("peak_tensor_bytes")) << summary;
    ASSERT_TRUE(summary.contains("predicted_peak_bytes")) << summary;
    const double told =
        summary["predicted_peak_bytes"].get<double>() / summary["peak_tensor_bytes"].get<double>();
    EXPECT_GT(told, 0.95) << replicas;
    EXPECT_LT(told, replicas == "1" ? 1.05 : 1.5) << replicas;  // replicas peak at different times
  }
}

TEST_F(Launched, evaluation_over_ranks_counts_each_sample_once) {
  const std::string eval = "eval " + alone("run.toml").string() + " --json";
  const auto one = go(forked_tanren() + " " + eval);
  const auto ranks = launch(3, eval);
  ASSERT_EQ(one.code + ranks.code, 0) << one.output << ranks.output;
  expect_same_json(nlohmann::json::parse(one.output), nlohmann::json::parse(ranks.output), "eval");
}

// The number of kills is TANREN_KILLS (for `make soak`), else 2.
TEST_F(Launched, a_killed_rank_is_named_and_the_run_goes_on_on_three_with_the_same_log) {
  const char* asked = std::getenv("TANREN_KILLS");
  const int kills = asked != nullptr ? std::atoi(asked) : 2;
  constexpr int64_t kSteps = 140, kEvery = 10;
  folder_.file("long.toml", config_text(kMlp, kSteps, kEvery));
  const fs::path one = alone("long.toml");
  std::random_device seed;
  std::mt19937 random(seed());
  for (int i = 0; i < kills; ++i) {
    fs::remove_all(at("cut"));
    const int victim = static_cast<int>(random() % 4);
    const auto from = static_cast<int64_t>(random() % 60);
    const std::string which =
        "rank " + std::to_string(victim) + " after line " + std::to_string(from);
    double waited = 0;
    int64_t seen = 0;
    {
      LauncherProcess launcher(folder_.path(), {"-n", "4", "run", "long.toml", "--out", "cut"});
      ASSERT_TRUE(comes_true([&] { return lines("cut") > from; })) << which << launcher.err();
      const auto ranks = ranks_of(launcher.out());
      ASSERT_EQ(ranks.size(), 4U) << launcher.out();
      const pid_t pid = ranks.at(victim);
      seen = steps("cut");
      const auto start = std::chrono::steady_clock::now();
      ASSERT_EQ(::kill(pid, SIGKILL), 0) << which;
      EXPECT_EQ(launcher.wait(10), 1) << which;
      waited = seconds_since(start);
      EXPECT_EQ(launcher.left(), std::vector<pid_t>{}) << which;
      TANREN_EXPECT_CONTAINS(
          launcher.err(), "[launch] rank " + std::to_string(victim) + " (pid " +
                              std::to_string(pid) +
                              ") failed first: killed by signal 9 (Killed); the others were ended");
    }
    // A step is logged before its checkpoint is written, so the newest checkpoint may be one
    // earlier.
    EXPECT_GE(last_checkpoint("cut"), (seen / kEvery - 1) * kEvery) << which;
    EXPECT_LT(last_checkpoint("cut"), kSteps) << which;
    const auto result = launch(3, "run long.toml --quiet --out cut");
    ASSERT_EQ(result.code, 0) << which << "\n" << result.output;
    expect_same_log(one, at("cut"));
    std::printf("killed %s: all ended in %.2f s\n", which.c_str(), waited);
    if (HasFailure()) return;
  }
}

// Ranks are forks of the launcher without exec.
TEST_F(Launched, ranks_hold_no_descriptor_of_the_launcher) {
  folder_.file("long.toml", config_text(kMlp, 2000, 500));
  LauncherProcess launcher(folder_.path(), {"-n", "3", "run", "long.toml", "--out", "long"});
  ASSERT_TRUE(comes_true([&] { return lines("long") > 2; })) << launcher.err();
  const auto ranks = ranks_of(launcher.out());
  ASSERT_EQ(ranks.size(), 3U) << launcher.out();
  // A process's descriptor numbers by the link target, so that both ends of a pipe are one entry.
  const auto descriptors_of = [](pid_t pid) {
    std::map<std::string, int> descriptors;
    for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
      std::error_code closed;
      descriptors[fs::read_symlink(entry.path(), closed)] = std::stoi(entry.path().filename());
    }
    return descriptors;
  };
  const auto of_launcher = descriptors_of(launcher.pid());
  const auto inherited = descriptors_of(::getpid());
  EXPECT_EQ(of_launcher.count("anon_inode:[signalfd]"), 1U);
  for (const auto& [rank, pid] : ranks) {
    for (const auto& [what, descriptor] : descriptors_of(pid)) {
      EXPECT_FALSE(contains(what, "signalfd")) << rank;
      if (!contains(what, "pipe:") || of_launcher.count(what) == 0) continue;
      if (inherited.count(what) > 0) continue;
      EXPECT_TRUE(descriptor == STDOUT_FILENO || descriptor == STDERR_FILENO)
          << "rank " << rank << " has " << what << " as " << descriptor;
    }
  }
  launcher.send(SIGINT);
  EXPECT_EQ(launcher.wait(), 130) << launcher.err();
}

TEST_F(Launched, an_interrupt_stops_all_after_the_same_update_and_the_run_goes_on) {
  folder_.file("long.toml", config_text(kMlp, 200, 50));
  const fs::path one = alone("long.toml");
  for (const int signal : {SIGINT, SIGTERM}) {
    fs::remove_all(at("cut"));
    LauncherProcess launcher(folder_.path(), {"-n", "3", "run", "long.toml", "--out", "cut"});
    ASSERT_TRUE(comes_true([&] { return lines("cut") > 20; })) << launcher.err();
    launcher.send(signal);
    EXPECT_EQ(launcher.wait(), 130) << launcher.err();
    const int64_t stopped = last_checkpoint("cut");
    TANREN_EXPECT_CONTAINS(launcher.out(), "stopped at step " + std::to_string(stopped));
    TANREN_EXPECT_CONTAINS(launcher.out(), " launch -n 3 run cut\n");  // how to resume
    EXPECT_GT(stopped, 20);
    EXPECT_LT(stopped, 200);
    EXPECT_EQ(launcher.left(), std::vector<pid_t>{});
    const auto result = launch(signal == SIGINT ? 3 : 2, "run cut --quiet");
    ASSERT_EQ(result.code, 0) << result.output;
    expect_same_log(one, at("cut"));
  }
}

// Issue 22.
TEST_F(Launched, an_interrupt_breaks_an_evaluation_off_on_every_rank_and_the_run_goes_on) {
  const std::string waiting = std::string(kMlp).replace(kMlp.find("mlp"), 3, "waiting");
  folder_.file("waiting.toml", config_text(waiting, 2, 1));
  const std::string run = kTestProgram + " run waiting.toml --quiet --set evaluate.batch=6 --out ";
  ASSERT_EQ(go(run + "one").code, 0);
  // Predict call 1 is the rehearsal. Call 2, in the first evaluation, waits on each rank.
  LauncherProcess launcher(folder_.path(), {"-n", "2", "--", "sh", "-c",
                                            "WAIT_AT=2 WAIT_FILE=wait exec " + run + "cut"});
  const auto waits = [&] { return fs::exists(at("wait0")) && fs::exists(at("wait1")); };
  ASSERT_TRUE(comes_true(waits)) << launcher.err();
  launcher.send(SIGINT);
  const auto has_heard = [&] { return contains(launcher.err(), "a signal came: it saves"); };
  EXPECT_TRUE(comes_true(has_heard)) << launcher.err();
  for (const char* file : {"wait0", "wait1"}) fs::remove(at(file));
  EXPECT_EQ(launcher.wait(), 130) << launcher.err();
  EXPECT_EQ(lines("cut"), 1);
  EXPECT_EQ(last_checkpoint("cut"), 1);
  const auto result = launch(2, "-- " + kTestProgram + " run cut --quiet");
  ASSERT_EQ(result.code, 0) << result.output;
  expect_same_log(at("one"), at("cut"));
}

// `timeout` signals the launcher and then its process group. The ranks have their own groups.
TEST_F(Launched, what_timeout_sends_twice_stops_all_and_the_run_goes_on) {
  if (!contains(go("timeout --version").output, "coreutils")) GTEST_SKIP() << "no timeout(1) here";
  folder_.file("long.toml", config_text(kMlp, 200, 50));
  const fs::path one = alone("long.toml");
  for (const std::string signal : {"TERM", "INT", "HUP"}) {
    fs::remove_all(at("cut"));
    Child child({"/bin/sh", "-c",
                 "cd '" + folder_.path().string() + "' && exec timeout --preserve-status -s " +
                     signal + " 1000 " + kTanren + " launch -n 2 run long.toml --out cut"});
    ASSERT_TRUE(comes_true([&] { return lines("cut") > 20; })) << child.text();
    child.signal(SIGALRM);  // as if its time were over
    EXPECT_EQ(child.ended(std::chrono::seconds(60)), 130) << child.text();
    TANREN_EXPECT_CONTAINS(child.text(),
                           "stopped at step " + std::to_string(last_checkpoint("cut")));
    const auto result = launch(2, "run cut --quiet");
    ASSERT_EQ(result.code, 0) << result.output;
    expect_same_log(one, at("cut"));
  }
}

// The kernel sends SIGHUP to the session leader and to the foreground group, and a shell sends it
// to its jobs again.
TEST_F(Launched, a_closed_terminal_stops_all_and_the_run_goes_on) {
  folder_.file("long.toml", config_text(kMlp, 200, 50));
  const fs::path one = alone("long.toml");
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_GE(terminal, 0);
  ASSERT_TRUE(::grantpt(terminal) == 0 && ::unlockpt(terminal) == 0);
  const std::string name = ::ptsname(terminal), folder = folder_.path();
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    ::setsid();
    const int own = ::open(name.c_str(), O_RDWR);  // becomes the session's terminal
    for (const int end : {0, 1, 2}) ::dup2(own, end);
    if (::chdir(folder.c_str()) != 0) ::_exit(99);
    ::execl(TANREN_BINARY, "tanren", "launch", "-n", "2", "run", "long.toml", "--quiet", "--out",
            "cut", nullptr);
    ::_exit(99);
  }
  const bool began = comes_true([&] { return lines("cut") > 20; });
  ::close(terminal);
  ::kill(launcher, SIGHUP);
  int status = 0;
  const bool ended = comes_true([&] { return ::waitpid(launcher, &status, WNOHANG) == launcher; });
  if (!ended) ::kill(launcher, SIGKILL);
  ASSERT_TRUE(began && ended);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 130) << status;
  const auto result = launch(2, "run cut --quiet");
  ASSERT_EQ(result.code, 0) << result.output;
  expect_same_log(one, at("cut"));
}

// A waiting rank has nothing to save, and would not check for a stop request until its timeout.
TEST_F(Launched, a_signal_ends_a_rank_that_waits_for_the_others_at_once) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const fs::path rendezvous = at("rendezvous" + std::to_string(signal));
    LauncherProcess launcher(folder_.path(),
                             {"-n", "1", "--nodes", "2", "--node-rank", "0", "--master",
                              "127.0.0.1:29511", "run", "run.toml", "--out", "none", "--set",
                              "parallel.rendezvous=file://" + rendezvous.string()});
    ASSERT_TRUE(comes_true([&] { return fs::exists(rendezvous); })) << launcher.err();
    launcher.send(signal);
    EXPECT_EQ(launcher.wait(20), 130) << launcher.err();
    TANREN_EXPECT_CONTAINS(launcher.err(),
                           "[run] stopped by a signal while it waited for the other");
    EXPECT_EQ(launcher.left(), std::vector<pid_t>{});
    EXPECT_FALSE(fs::exists(at("none")));
  }
}

// Issue 26: ranks ignored signals while a text was tokenized, and while they waited for its ids.
TEST_F(Launched, a_signal_ends_ranks_that_wait_for_the_ids_of_a_text_at_once) {
  folder_.file("book.txt", "the blade remembers every blow of the hammer\n");
  folder_.file("text.toml",
               "[run]\nsteps = 2\nthreads = 1\n[model]\nkind = \"lstm\"\ntask = \"next_token\"\n"
               "hidden_size = 6\n[data.train]\nkind = \"text\"\npath = \"book.txt\"\ncontext = "
               "8\ntokenizer = \"" +
                   std::string(TANREN_SOURCE_DIR "/tests/fixtures/tokenizer/bpe.json") +
                   "\"\n[batch]\nglobal_batch = 2\n[precision]\nmode = \"fp32\"\n");
  fs::create_directory(at(".tokens"));
  const int held = ::open(at(".tokens").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);  // as another process does while it makes the ids
  LauncherProcess launcher(folder_.path(), {"-n", "2", "run", "text.toml", "--out", "texts"});
  ASSERT_TRUE(comes_true([&] { return fs::exists(at("texts/lock")); })) << launcher.err();
  std::this_thread::sleep_for(std::chrono::seconds(2));  // until both wait
  launcher.send(SIGTERM);
  EXPECT_EQ(launcher.wait(10), 130) << launcher.err();
  EXPECT_EQ(launcher.left(), std::vector<pid_t>{});
  const std::string told = launcher.err(), line = "[run] stopped by a signal";
  const size_t first = told.find(line);
  ASSERT_NE(first, std::string::npos) << told;
  EXPECT_EQ(told.find(line, first + 1), std::string::npos) << "one rank tells: " << told;
  ::close(held);
  EXPECT_TRUE(fs::is_empty(at(".tokens")));
  const auto result = launch(2, "run text.toml --quiet --out texts");
  EXPECT_EQ(result.code, 0) << result.output;
}

// Arguments of `tanren launch` that start each rank with --set "$SET".
std::string by_rank(const std::string& set) {
  return "-- sh -c '" + set + "; exec " + kTanren +
         " run run.toml --quiet --out out --set \"$SET\"'";
}

TEST_F(Launched, another_config_on_a_rank_is_named_with_the_key) {
  const auto differs = [&](const std::string& set, const std::string& of_1,
                           const std::string& of_0) {
    fs::remove_all(at("out"));
    expect_line(launch(2, by_rank("SET=" + set)), 2,
                "\\[parallel\\] rank 1 has " + of_1 + ", rank 0 has " + of_0 +
                    "; start every rank with the same program, config and data");
  };
  differs("optimizer.learning_rate=0.$((RANK + 1))", "optimizer.learning_rate 0.2",
          "optimizer.learning_rate 0.1");
  // This key does not define the run. But if it differs, one rank would wait for the others.
  differs("evaluate.every=$((RANK + 4))", "evaluate.every 5", "evaluate.every 4");
  differs("parallel.pipeline=$((RANK + 1))", "parallel.pipeline 2", "parallel.pipeline 1");
  differs("model.hidden=[1$RANK]", "model.hidden \\[11\\]", "model.hidden \\[10\\]");
  EXPECT_EQ(launch(2, by_rank("SET=run.threads=$((RANK + 1))")).code, 0);
}

// Ranks have different memory: that with the least cuts stages elsewhere, and all use its cuts.
TEST_F(Launched, stages_are_cut_for_the_least_limit_of_all_ranks) {
  const std::string data =
      "kind = \"synthetic\"\nsamples = 64\n"
      "fields = [\"inputs: int[64] in [0, 49]\", \"labels: int[64] in [0, 49]\"]\n";
  folder_.file("run.toml",
               "[run]\nsteps = 1\nthreads = 1\n[model]\nkind = \"gpt2\"\nnum_layers = 8\n"
               "num_heads = 2\nhidden_size = 64\nvocab_size = 500\ncontext_length = 64\n"
               "[data]\nworkers = 0\n[data.train]\n" +
                   data +
                   "[batch]\nglobal_batch = 32\nmicrobatch = 8\n[precision]\nmode = \"fp32\"\n"
                   "[memory]\nallocator = \"cached\"\n[parallel]\npipeline = 2\n");
  const auto planned = [&](const std::string& limit) {
    const auto plan = go(forked_tanren() + " plan run.toml --json --set memory.limit=" + limit);
    return plan.code == 0 ? nlohmann::json::parse(plan.output) : nlohmann::json();
  };
  const auto cut = [](const nlohmann::json& plan) { return plan["cut_at"]["value"]; };
  const auto roomy = planned("4GiB");
  ASSERT_TRUE(roomy.contains("predicted_peak")) << roomy;
  const std::string peak = roomy["predicted_peak"]["value"];
  ASSERT_NE(peak.find(" MiB"), std::string::npos) << peak;
  int64_t mebibytes = static_cast<int64_t>(std::stod(peak) * 1.1) + 6;
  auto tight = planned(std::to_string(mebibytes) + "MiB");
  while (!tight.is_null() && cut(tight) == cut(roomy)) {
    tight = planned(std::to_string(--mebibytes) + "MiB");
  }
  ASSERT_FALSE(tight.is_null()) << mebibytes;
  const auto result = launch(2, by_rank("SET=memory.limit=$((4096 - RANK * " +
                                        std::to_string(4096 - mebibytes) + "))MiB"));
  ASSERT_EQ(result.code, 0) << result.output;
  const std::string plan = read_file(at("out") / "plan.txt");
  const size_t line = plan.find("\ncut_at ") + 1;
  TANREN_EXPECT_CONTAINS(plan.substr(line, plan.find('\n', line) - line),
                         " " + std::string(cut(tight)) + " ");
  TANREN_EXPECT_CONTAINS(plan, "; the least memory_limit of all ranks leaves a stage ");
}

TEST_F(Launched, another_file_of_first_weights_on_a_stage_is_named) {
  train_alone("run.toml --set run.steps=1", "w0");
  train_alone("run.toml --set run.steps=2", "w1");
  const std::string begin = "-- sh -c 'exec " + kTanren +
                            " run run.toml --quiet --out out --set parallel.pipeline=2"
                            " --set model.init_from=";
  expect_line(launch(2, begin + "w$RANK/model.safetensors'"), 2,
              "\\[parallel\\] rank 1 has hash of the first weights [^ ]+ [0-9a-f]{16}, rank 0 has "
              "hash of the first weights .*");
  fs::copy(at("w0"), at("copy0"), fs::copy_options::recursive);
  fs::copy(at("w0"), at("copy1"), fs::copy_options::recursive);
  fs::remove_all(at("out"));
  const auto same = launch(2, begin + "copy$RANK/model.safetensors'");
  EXPECT_EQ(same.code, 0) << same.output;
}

TEST_F(Launched, other_data_on_a_rank_are_named) {
  const auto differs = [&](const std::string& rows_of_1, const std::string& of_1,
                           const std::string& of_0) {
    fs::remove_all(at("out"));
    folder_.file("data0.csv", "a,b,label\n1,2,0\n3,4,1\n5,6,0\n7,8,1\n");
    folder_.file("data1.csv", "a,b,label\n" + rows_of_1);
    folder_.file("run.toml",
                 "[run]\nsteps = 3\n[model]\nkind = \"mlp\"\n[batch]\nglobal_batch = 2\n"
                 "[data.train]\nkind = \"csv\"\npath = \"data0.csv\"\nclasses = 2\n");
    expect_line(launch(2, by_rank("SET=data.train.path=\"'\"'\"'\"data$RANK.csv\"'\"'\"'\"")), 2,
                "\\[parallel\\] rank 1 has " + of_1 + ", rank 0 has " + of_0 + "; start .*");
  };
  differs("1,2,0\n3,4,1\n", "samples of data.train 2", "samples of data.train 4");
  differs("1,2,0\n3,4,1\n5,6,0\n7,9,1\n", "inputs of data.train [0-9a-f]{16}",
          "inputs of data.train [0-9a-f]{16}");
}

TEST_F(Launched, what_one_rank_refuses_ends_all) {
  const auto result = launch(2, by_rank("SET=run.steps=$((RANK * 3))"));
  EXPECT_EQ(result.code, 2);
  TANREN_EXPECT_CONTAINS(result.output, "[rank 0] [config] ");
  TANREN_EXPECT_CONTAINS(result.output, " failed first: [config] ");
}

TEST_F(Launched, two_processes_with_one_rank_are_told) {
  const auto result = launch(3, "-- sh -c 'RANK=$((RANK > 0)); sleep $LOCAL_RANK; exec " + kTanren +
                                    " run run.toml --quiet --out out --set parallel.timeout=20'");
  EXPECT_EQ(result.code, 2);
  TANREN_EXPECT_CONTAINS(result.output, "two processes say that they are rank 1 of 3 at ");
}

TEST_F(Launched, a_rank_that_does_not_come_is_named) {
  const auto result = launch(3, "-- sh -c '[ $RANK = 1 ] && exec sleep 100; exec " + kTanren +
                                    " run run.toml --quiet --out out --set parallel.timeout=3'");
  EXPECT_EQ(result.code, 1);
  static const std::regex missing(
      "\\[comm\\] after 3 s these ranks of 3 have not come to 127.0.0.1:[0-9]+: 1\n");
  EXPECT_TRUE(std::regex_search(result.output, missing)) << result.output;
  EXPECT_FALSE(fs::exists(at("out") / "log.jsonl"));
}

TEST_F(Launched, nccl_without_cuda_is_refused_in_one_line) {
  expect_line(launch(2,
                     "run run.toml --quiet --out out --set run.device=cpu "
                     "--set parallel.backend=nccl"),
              2,
              "\\[plan\\] parallel.backend is \"nccl\", which sums on CUDA devices, and the run's "
              "device is cpu .*; set parallel.backend = \"gloo\" or \"auto\"");
}

// One device can have only one NCCL rank.
TEST_F(Launched, a_rank_with_nccl_on_cuda_is_one_process_there) {
  const auto plan = go(forked_tanren() + " plan run.toml --set run.device=cuda");
  if (plan.code != 0) GTEST_SKIP() << "no CUDA device, NCCL was not tried: " << plan.output;
  const std::string device = " --set run.device=cuda --quiet --out ";
  ASSERT_EQ(go(forked_tanren() + " run run.toml" + device + "one").code, 0);
  const auto result = launch(1, "run run.toml --set parallel.backend=nccl" + device + "nccl");
  ASSERT_EQ(result.code, 0) << result.output;
  expect_same_log(at("one"), at("nccl"));
}

TEST_F(Launched, a_run_folder_that_is_finished_or_of_another_config_is_refused) {
  train_alone("run.toml", "out");
  const auto finished = launch(2, "run run.toml --quiet --out out");
  EXPECT_EQ(finished.code, 2);
  EXPECT_EQ(finished.output,
            "[run] out is finished; raise run.steps or run.epochs to resume, or name another "
            "run.name or --out\n");
  const auto other = launch(2, "run run.toml --quiet --out out --set run.seed=8");
  EXPECT_EQ(other.code, 2);
  TANREN_EXPECT_CONTAINS(other.output, "was made with another config (run.seed: 7 → 8)");
}

// Each rank writes the draws of at::dropout, a line per forward.
TEST_F(Launched, torchs_own_dropout_differs_over_ranks_and_is_the_same_when_resumed) {
  folder_.file("drop.toml", config_text("kind = \"torch_dropout\"", 12, 100));
  const auto train = [&](int ranks, const std::string& out, const std::string& more) {
    const auto result =
        launch(ranks, "-- " + kTestProgram + " run drop.toml --quiet --out " + out + " " + more,
               "TORCH_DROPOUT_DRAWS=" + out + ".");
    EXPECT_EQ(result.code, 0) << result.output;
  };
  train(2, "whole", "");
  const std::string first = read_file(at("whole.0")), second = read_file(at("whole.1"));
  EXPECT_EQ(std::count(first.begin(), first.end(), '\n'), 12);
  EXPECT_NE(first, second);
  train(2, "cut", "--set run.stop_after=5");
  train(2, "cut", "");
  EXPECT_EQ(read_file(at("cut.0")), first);
  EXPECT_EQ(read_file(at("cut.1")), second);
  expect_same_log(at("whole"), at("cut"));
}

}  // namespace
}  // namespace tanren::testing
