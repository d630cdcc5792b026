// `tanren sweep` as a user starts it. Trials are runs, each outcome is reported, and a sweep that
// was stopped or killed resumes as if nothing had happened. TANREN_SWEEP_KILLS is the number of
// kills of each sweep, with all samplers and all schedulers, for scripts/soak.
#include "tests/sweep/sweep_run.h"

#include <csignal>
#include <cstdlib>
#include <random>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

const std::string kTestProgram = TANREN_TEST_PROGRAM;

const std::string kAdam = "values = [0.1, 0.01]";
const std::string kRange = "low = 1e-4\nhigh = 0.1\nscale = \"log\"";

class Sweep : public SweepRun {
 protected:
  // A sweep in s whose first trial has begun and lasts longer than any test.
  Child start_long(const std::string& config) {
    Child sweep = start(TANREN_BINARY, {"sweep", at(config), "--out", at("s"), "--set",
                                        "run.steps=1000000", "--set", "evaluate.every=500000"});
    EXPECT_TRUE(soon([&] {
      std::error_code none;
      return fs::file_size(at("s" + trial(0)) / "log.jsonl", none) > 100 && !none;
    }));
    return sweep;
  }
};

// Adds lines to a journal, as docs/file-formats.md says for other programs.
void append(const fs::path& journal, const std::vector<std::string>& objects) {
  constexpr size_t kSumBytes = 26;
  uint64_t sum = 0xcbf29ce484222325;
  const auto add = [&](const std::string& object) {
    for (const unsigned char c : object) sum = (sum ^ c) * 0x100000001b3;
  };
  std::string text = read_file(journal);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    add(line.substr(0, line.size() - kSumBytes) + "}");
  }
  for (const std::string& object : objects) {
    add(object);
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(sum));
    text += object.substr(0, object.size() - 1) + ",\"sum\":\"" + digits + "\"}\n";
  }
  std::ofstream(journal) << text;
}

TEST_F(Sweep, of_a_grid_trains_each_combination_as_an_ordinary_run) {
  write("grid", "sampler = \"grid\"\nkeep = 1",
        dimension("optimizer.learning_rate", kAdam) +
            dimension("model.hidden", "values = [\"[8]\", \"[4, 4]\"]"));
  const auto result = tanren("sweep grid.toml --out s");
  ASSERT_EQ(result.code, 0) << result.output;
  TANREN_EXPECT_CONTAINS(result.output, "s: 4 trials by loss");
  TANREN_EXPECT_CONTAINS(result.output, "trial 0001: begins until step 8: ");
  TANREN_EXPECT_CONTAINS(result.output, "TRIALS BY LOSS");
  TANREN_EXPECT_CONTAINS(result.output, "the page: s/sweep.html");
  EXPECT_EQ(leaderboard("s")["done"], true);
  const auto all = trials("s");
  ASSERT_EQ(all.size(), 4u);
  std::set<std::string> values;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string folder = "s" + trial(static_cast<int64_t>(i));
    const std::string alone = "alone" + std::to_string(i);
    EXPECT_EQ(all[i]["state"], "finished");
    EXPECT_EQ(all[i]["step"], 8);
    values.insert(all[i]["values"].dump());
    ASSERT_EQ(tanren("run run.toml --quiet --out " + alone + sets(all[i])).code, 0);
    EXPECT_EQ(plain_log(folder), plain_log(alone));
    const auto summary = nlohmann::json::parse(read_file(at(alone) / "summary.json"));
    EXPECT_EQ(all[i]["value"], summary["evaluate.loss"]);
    ASSERT_EQ(all[i]["metrics"].size(), 2u);
    EXPECT_EQ(all[i]["metrics"][0][0], 4);
    EXPECT_EQ(all[i]["metrics"][1][1], all[i]["value"]);
    // Only the best trial keeps the files that can be evaluated.
    EXPECT_EQ(fs::exists(at(folder) / "checkpoints"), all[i]["rank"] == 1);
    EXPECT_EQ(fs::exists(at(folder) / "model.safetensors"), all[i]["rank"] == 1);
    EXPECT_EQ(read_file(at(folder) / "config.toml").find("[[sweep.space]]"), std::string::npos);
    TANREN_EXPECT_CONTAINS(read_file(at(folder) / "output.txt"), "finished: 8 steps");
  }
  EXPECT_EQ(values.size(), 4u);
  const auto best = leaderboard("s")["trials"][0];
  EXPECT_TRUE(fs::equivalent(at("s/best"), at("s" + trial(best["trial"].get<int64_t>()))));
  const auto evaluated = tanren("eval s/best --json");
  ASSERT_EQ(evaluated.code, 0) << evaluated.output;
  EXPECT_EQ(nlohmann::json::parse(evaluated.output)["evaluate.loss"], best["value"]);
  // The page has the same numbers.
  const auto page = page_data("s");
  ASSERT_EQ(page["trials"].size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    for (const char* key : {"trial", "state", "value", "step", "values", "metrics"}) {
      EXPECT_EQ(page["trials"][i][key], leaderboard("s")["trials"][i][key]) << key;
    }
  }
  const std::string html = read_file(at("s/sweep.html"));
  const auto rate = best["values"]["optimizer.learning_rate"].get<std::string>();
  const auto hidden = best["values"]["model.hidden"].get<std::string>();
  TANREN_EXPECT_CONTAINS(
      html, "--set optimizer.learning_rate=" + rate + " --set 'model.hidden=" + hidden + "'");
  TANREN_EXPECT_CONTAINS(
      html, "[optimizer]\nlearning_rate = " + rate + "\n\n[model]\nhidden = " + hidden);
  const auto time = nlohmann::json::parse(read_file(at("s/time.json")));
  EXPECT_GT(time["seconds"], 0.0);
  EXPECT_GT(time["cpu_seconds"], 0.0);
  // All trials are done: the sweep starts none and writes the same page again.
  fs::remove(at("s/sweep.html"));
  const auto again = tanren("sweep s");
  EXPECT_EQ(again.code, 0) << again.output;
  EXPECT_EQ(again.output.find("begins"), std::string::npos) << again.output;
  EXPECT_EQ(page_data("s"), page);
  const auto later = nlohmann::json::parse(read_file(at("s/time.json")));
  EXPECT_GT(later["seconds"], time["seconds"]);
  EXPECT_EQ(later["cpu_seconds"], time["cpu_seconds"]);
}

TEST_F(Sweep, by_halves_pauses_trials_and_resumes_the_best_as_if_never_paused) {
  write("asha",
        "sampler = \"random\"\nscheduler = \"asha\"\ntrials = 6\nreduction = 2\nfirst_rung = 4",
        dimension("optimizer.learning_rate", kRange));
  const auto result = tanren("sweep asha.toml --out s --set run.steps=16");
  ASSERT_EQ(result.code, 0) << result.output;
  TANREN_EXPECT_CONTAINS(result.output, ": from step 4 until step 8: ");
  const auto all = trials("s");
  ASSERT_EQ(all.size(), 6u);
  int64_t steps = 0, whole = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto step = all[i]["step"].get<int64_t>();
    steps += step;
    EXPECT_TRUE(step == 4 || step == 8 || step == 16) << step;
    EXPECT_EQ(all[i]["state"], step == 16 ? "finished" : "stopped");
    if (step < 16) continue;
    ++whole;
    const std::string alone = "alone" + std::to_string(i);
    ASSERT_EQ(tanren("run run.toml --quiet --set run.steps=16 --out " + alone + sets(all[i])).code,
              0);
    EXPECT_EQ(plain_log("s" + trial(static_cast<int64_t>(i))), plain_log(alone));
  }
  EXPECT_GE(whole, 1);
  EXPECT_LE(steps, 6 * 16 / 2 + 16);  // one of two goes on, at the first rung among 4 or fewer
}

TEST_F(Sweep, takes_the_steps_of_epochs_from_the_plan) {
  write("asha",
        "sampler = \"random\"\nscheduler = \"asha\"\ntrials = 3\nreduction = 2\nfirst_rung = 4",
        dimension("optimizer.learning_rate", kRange));
  const auto result =
      tanren("sweep asha.toml --out s --set run.steps=none --set run.epochs=2");  // of 6 updates
  ASSERT_EQ(result.code, 0) << result.output;
  EXPECT_EQ(journal("s")[0]["steps"], 12);
  EXPECT_EQ(leaderboard("s")["trials"][0]["step"], 12);
  expect_code(
      "sweep asha.toml --out t --set run.steps=none --set run.epochs=2 "
      "--set sweep.first_rung=12",
      2, {"[sweep] first_rung is 12 and a whole trial has 12 steps"});
  Child talks =
      start(kTestProgram, {"sweep", at("asha.toml"), "--out", at("u"), "--set", "run.steps=none",
                           "--set", "run.epochs=2", "--set", "model.kind=talking"});
  ASSERT_EQ(talks.ended(seconds(120)), 0) << talks.text();
  EXPECT_EQ(journal("u")[0]["steps"], 12);
  Child leaves =
      start(kTestProgram, {"sweep", at("asha.toml"), "--out", at("v"), "--set", "run.steps=none",
                           "--set", "run.epochs=2", "--set", "model.kind=leaving"});
  EXPECT_EQ(leaves.ended(seconds(120)), 1) << leaves.text();
  TANREN_EXPECT_CONTAINS(
      leaves.text(),
      "[sweep] the process that plans a trial ended with code 0 before the plan was made");
  fs::remove(at("train.csv"));
  expect_code("sweep asha.toml --out t --set run.steps=none --set run.epochs=2", 2, {"train.csv"});
  EXPECT_FALSE(fs::exists(at("t")));
}

TEST_F(Sweep, of_a_population_forks_its_best) {
  write("pbt", "sampler = \"random\"\nscheduler = \"pbt\"\ntrials = 4\ninterval = 4",
        dimension("optimizer.learning_rate", kRange));
  const auto result = tanren("sweep pbt.toml --out s --set run.steps=12");
  ASSERT_EQ(result.code, 0) << result.output;
  const auto all = trials("s");
  ASSERT_EQ(all.size(), 6u);  // two exchanges, a fork at each
  for (size_t i = 4; i < all.size(); ++i) {
    const auto source = all[i]["fork_of"].get<int64_t>();
    const int64_t step = i == 4 ? 4 : 8;
    EXPECT_EQ(all[i]["fork_step"], step);
    const std::string folder = "s" + trial(static_cast<int64_t>(i));
    const auto lines = log(folder);
    const auto first = std::find_if(lines.begin(), lines.end(),
                                    [](const auto& line) { return line.contains("attempt"); });
    ASSERT_NE(first, lines.end());
    EXPECT_EQ((*first)["step"], step + 1);
    EXPECT_NE(all[i]["values"], all[static_cast<size_t>(source)]["values"]);
    TANREN_EXPECT_CONTAINS(read_file(at(folder) / "config.toml"),
                           trial(source) + "/checkpoints/step-" + std::to_string(step));
  }
  int64_t finished = 0;
  for (const auto& entry : all) finished += entry["state"] == "finished" ? 1 : 0;
  EXPECT_EQ(finished, 4);
}

TEST_F(Sweep, that_meets_a_crash_a_hang_and_a_divergence_tells_them_and_goes_on) {
  write("grid", "sampler = \"grid\"\nconcurrent = 2\ntimeout = 2",
        dimension("model.kind", "values = [\"hanging\", \"mortal\", \"mlp\", \"diverging\"]"));
  Child sweep = start(kTestProgram, {"sweep", at("grid.toml"), "--out", at("s")},
                      {"DIE_POINT=forward", "DIE_AT=3"});
  ASSERT_EQ(sweep.ended(seconds(120)), 0) << sweep.text();
  const auto all = trials("s");
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0]["state"], "hung");
  EXPECT_EQ(all[0]["reason"], "no log line and no processor time for 2 s");
  EXPECT_EQ(all[1]["state"], "crashed");
  EXPECT_EQ(all[1]["reason"], "signal 9 (Killed)");
  EXPECT_LE(all[1]["step"].get<int64_t>(), 2);  // up to where its log was written
  EXPECT_EQ(all[2]["state"], "finished");
  EXPECT_EQ(all[2]["rank"], 1);
  EXPECT_EQ(all[3]["state"], "diverged");
  EXPECT_TRUE(all[3]["value"].is_null());
  TANREN_EXPECT_CONTAINS(all[3]["reason"].get<std::string>(), "[guard] step 1");
  TANREN_EXPECT_CONTAINS(sweep.text(), "trial 0001: crashed: signal 9 (Killed)");
}

TEST_F(Sweep, whose_trials_share_memory_runs_once_more_alone_what_does_not_fit) {
  // Weights, gradients and two moments: 103 MiB with 2600 units, 256 MiB with 4096.
  write("grid", "sampler = \"grid\"\nconcurrent = 2",
        dimension("model.hidden", "values = [\"[2600, 2600]\", \"[4096, 4096]\", \"[8]\"]"));
  const auto result = tanren("sweep grid.toml --out s --set memory.limit=200MiB");
  ASSERT_EQ(result.code, 0) << result.output;
  const auto all = trials("s");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0]["state"], "finished");
  EXPECT_EQ(all[1]["state"], "too_large");
  TANREN_EXPECT_CONTAINS(all[1]["reason"].get<std::string>(),
                         "[plan] memory.limit 200 MiB is less");
  EXPECT_EQ(all[2]["state"], "finished");
  TANREN_EXPECT_CONTAINS(result.output, "trial 0000: waiting: [plan] memory.limit 100 MiB");
  TANREN_EXPECT_CONTAINS(result.output, "trial 0000: begins until step 8, alone");
  EXPECT_FALSE(fs::exists(at("s" + trial(1)) / "config.toml"));
  EXPECT_TRUE(fs::exists(at("s" + trial(1)) / "output.txt"));
}

// Kills each sweep at random moments and resumes it. Expects the results of the undisturbed sweep.
TEST_F(Sweep, that_was_killed_goes_on_as_the_undisturbed_one) {
  const char* asked = std::getenv("TANREN_SWEEP_KILLS");
  const int kills = asked != nullptr ? std::atoi(asked) : 1;
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  Pairs sweeps = {
      {"grid", "none"}, {"random", "asha"}, {"tpe", "pbt"}, {"random", "pbt"}, {"tpe", "asha"}};
  const Pairs others = {{"random", "none"}, {"tpe", "none"}, {"grid", "asha"}, {"grid", "pbt"}};
  if (asked != nullptr) sweeps.insert(sweeps.end(), others.begin(), others.end());
  std::mt19937 random(7);
  for (const auto& [sampler, scheduler] : sweeps) {
    const std::string name = sampler + "_" + scheduler;
    SCOPED_TRACE(name);
    const std::string range = sampler == "grid" ? kRange + "\npoints = 4" : kRange;
    write(name,
          "trials = 4\nsampler = \"" + sampler + "\"\nscheduler = \"" + scheduler + "\"\n" +
              (scheduler == "asha" ? "first_rung = 4\nreduction = 2" : ""),
          dimension("optimizer.learning_rate", range));
    const std::string whole = "whole_" + name;
    const std::string set = " --set run.steps=12 --set checkpoint.every=3";
    const auto began = std::chrono::steady_clock::now();
    const auto first = tanren("sweep " + name + ".toml --quiet --out " + whole + set);
    ASSERT_EQ(first.code, 0) << first.output;
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - began);
    std::uniform_int_distribution<int64_t> moments(20, std::max<int64_t>(40, took.count() * 2 / 3));
    for (int i = 0; i < kills; ++i) {
      Child sweep = start(TANREN_BINARY, {"sweep", at(name + ".toml"), "--quiet", "--out", at(name),
                                          "--set", "run.steps=12", "--set", "checkpoint.every=3"});
      ::usleep(static_cast<useconds_t>(moments(random) * 1000));
      sweep.signal(SIGKILL);
      const int code = sweep.ended(seconds(60));
      ASSERT_TRUE(code == 128 + SIGKILL || code == 0) << code << sweep.text();
    }
    const auto last = tanren("sweep " + name + ".toml --quiet --out " + name + set);
    ASSERT_EQ(last.code, 0) << last.output;
    EXPECT_EQ(read_file(at(name) / "leaderboard.json"), read_file(at(whole) / "leaderboard.json"));
    const auto all = trials(name);
    for (size_t i = 0; i < all.size(); ++i) {
      const std::string folder = trial(static_cast<int64_t>(i));
      EXPECT_EQ(plain_log(name + folder), plain_log(whole + folder)) << folder;
    }
  }
}

// The state after a kill between a trial's checkpoint at its rung and the evaluation there.
TEST_F(Sweep, makes_up_the_evaluation_at_a_rung_without_another_update) {
  write("asha",
        "trials = 2\nsampler = \"grid\"\nscheduler = \"asha\"\nfirst_rung = 4\nreduction = 2\n"
        "keep = 2",
        dimension("optimizer.learning_rate", "values = [1e-9, 0.1]"));
  const std::string command =
      "sweep asha.toml --quiet --set run.steps=8 --set evaluate.every=4 --set checkpoint.every=4";
  ASSERT_EQ(tanren(command + " --out whole").code, 0);
  fs::create_directories(at("s/trials"));
  fs::copy(at("whole/sweep.json"), at("s/sweep.json"));
  std::istringstream journal(read_file(at("whole/journal.jsonl")));
  std::string head, start;
  std::getline(journal, head);
  std::getline(journal, start);
  std::ofstream(at("s/journal.jsonl")) << head << "\n" << start << "\n";
  const std::string unjudged = " --set evaluate.every=8 --set sweep.scheduler=none";
  const auto begun = tanren("run asha.toml --quiet --out s" + trial(0) + unjudged +
                            " --set run.steps=8 --set checkpoint.every=4 --set run.stop_after=4"
                            " --set optimizer.learning_rate=1e-9");
  ASSERT_EQ(begun.code, 0) << begun.output;
  ASSERT_EQ(tanren(command + " --out s").code, 0);
  EXPECT_EQ(trials("s")[0]["step"], 4);
  const std::string saved = read_file(at("s" + trial(0) + "/checkpoints/step-4/config.toml"));
  EXPECT_EQ(saved.find("stop_after"), std::string::npos);  // it belongs to one start only
  for (const int64_t id : {0, 1}) {
    EXPECT_EQ(plain_log("s" + trial(id)), plain_log("whole" + trial(id))) << id;
  }
  EXPECT_EQ(read_file(at("s/leaderboard.json")), read_file(at("whole/leaderboard.json")));
}

TEST_F(Sweep, saves_its_trials_at_an_interrupt_and_is_alone_in_its_folder) {
  write("grid", "sampler = \"grid\"\nconcurrent = 2", dimension("optimizer.learning_rate", kAdam));
  const std::vector<std::string> words = {
      "sweep", at("grid.toml"),   "--out", at("s"),
      "--set", "run.steps=20000", "--set", "evaluate.every=10000"};
  Child sweep = start(TANREN_BINARY, words);
  ASSERT_TRUE(soon([&] {
    std::error_code none;
    return fs::file_size(at("s" + trial(0)) / "log.jsonl", none) > 100 && !none &&
           fs::file_size(at("s" + trial(1)) / "log.jsonl", none) > 100 && !none;
  }));
  // A fork of a process may call anything only if the process has one thread.
  const fs::path tasks = "/proc/" + std::to_string(sweep.pid()) + "/task";
  EXPECT_EQ(std::distance(fs::directory_iterator(tasks), fs::directory_iterator()), 1);
  expect_code("sweep s", 2, {"[sweep] another process writes s/journal.jsonl"});
  sweep.signal(SIGINT);
  ASSERT_EQ(sweep.ended(seconds(60)), 130) << sweep.text();
  TANREN_EXPECT_CONTAINS(sweep.text(), "came: the trials save and stop");
  TANREN_EXPECT_CONTAINS(sweep.text(), "stopped: 0 of 2 trials have ended; go on with: ");
  for (int64_t id : {0, 1}) {
    EXPECT_EQ(trials("s")[static_cast<size_t>(id)]["state"], "running");
    const auto summary = nlohmann::json::parse(read_file(at("s" + trial(id)) / "summary.json"));
    EXPECT_EQ(summary["status"], "stopped");
    EXPECT_EQ(page_data("s")["trials"][static_cast<size_t>(id)]["state"], "running");
  }
  const auto last = tanren("sweep s");
  ASSERT_EQ(last.code, 0) << last.output;
  EXPECT_EQ(last.output.find("trial 0000: begins"), std::string::npos) << last.output;
  for (const auto& entry : trials("s")) {
    EXPECT_EQ(entry["state"], "finished");
    EXPECT_EQ(entry["step"], 20000);
  }
}

// A batch system or systemd that ends a whole job signals its processes in any order.
TEST_F(Sweep, whose_trial_is_signalled_before_itself_goes_on_with_that_trial) {
  write("grid", "sampler = \"grid\"\ntimeout = 0", dimension("optimizer.learning_rate", kAdam));
  Child sweep = start_long("grid.toml");
  const auto before = trial_processes(sweep.pid());
  ASSERT_EQ(before.size(), 1u);
  ::kill(before[0], SIGTERM);
  ASSERT_TRUE(soon([&] { return trial_processes(sweep.pid()).empty(); }));
  sweep.signal(SIGTERM);
  ASSERT_EQ(sweep.ended(seconds(60)), 130) << sweep.text();
  ASSERT_EQ(trials("s").size(), 1u);
  EXPECT_EQ(trials("s")[0]["state"], "running");
}

TEST_F(Sweep, that_was_paused_with_its_trials_takes_none_for_hung) {
  write("grid", "sampler = \"grid\"\ntimeout = 3", dimension("optimizer.learning_rate", kAdam));
  Child sweep = start_long("grid.toml");
  const auto processes = trial_processes(sweep.pid());
  ASSERT_EQ(processes.size(), 1u);
  ::kill(processes[0], SIGSTOP);
  ::sleep(1);  // the sweep checks once more and sees no progress
  sweep.signal(SIGSTOP);
  ::sleep(4);
  sweep.signal(SIGCONT);
  ::usleep(200'000);
  ::kill(processes[0], SIGCONT);
  ::usleep(200'000);
  sweep.signal(SIGINT);
  ASSERT_EQ(sweep.ended(seconds(60)), 130) << sweep.text();
  EXPECT_EQ(trials("s")[0]["state"], "running") << trials("s")[0];
}

TEST_F(Sweep, starts_nothing_more_on_a_full_disk_and_goes_on_later) {
  write("grid", "sampler = \"grid\"", dimension("optimizer.learning_rate", kAdam));
  const auto starts = [&] {
    const auto lines = journal("s");
    return std::count_if(lines.begin(), lines.end(),
                         [](const auto& line) { return line.contains("start"); });
  };
  // Files may have 4 KiB: the journal fits, the config of a run does not.
  const auto full = shell(
      "ulimit -f 8; trap '' XFSZ; exec " + std::string(TANREN_BINARY) + " sweep grid.toml --out s",
      folder_.path());
  EXPECT_EQ(full.code, 1) << full.output;
  TANREN_EXPECT_CONTAINS(full.output, "; no trial was started after that");
  EXPECT_EQ(starts(), 1);
  const auto later = tanren("sweep s");
  ASSERT_EQ(later.code, 0) << later.output;
  EXPECT_EQ(starts(), 2);
  for (const auto& entry : trials("s")) EXPECT_EQ(entry["state"], "finished");
}

TEST_F(Sweep, may_grow_and_takes_no_other_config) {
  const std::string rate = dimension("optimizer.learning_rate", kRange);
  write("random", "sampler = \"random\"\ntrials = 2", rate);
  ASSERT_EQ(tanren("sweep random.toml --quiet --out s").code, 0);
  const std::string before = read_file(at("s/journal.jsonl"));
  expect_code("sweep random.toml --out s --set model.hidden=[16]", 2,
              {"s is of a sweep of another config (model.hidden: [8] → [16]); go back to it"});
  expect_code("sweep s --set evaluate.every=2", 2, {"evaluate.every: 4 → 2"});
  expect_code("sweep s --set early_stop.patience=2", 2, {"early_stop.patience: 0 → 2"});
  expect_code("sweep s --set sweep.sampler=tpe", 2, {"sampler"});
  expect_code("sweep s --set sweep.trials=1", 2, {"it may only grow"});
  expect_code("sweep s --out t", 2, {"goes on in its own folder; drop --out"});
  EXPECT_EQ(read_file(at("s/journal.jsonl")), before);
  ASSERT_EQ(tanren("sweep s --quiet --set sweep.trials=3").code, 0);
  EXPECT_EQ(trials("s").size(), 3u);
  // The sweep keeps its new size. It does not depend on its config file or on the current folder.
  fs::create_directory(at("elsewhere"));
  fs::remove(at("random.toml"));
  const auto later = shell(forked_tanren() + " sweep ../s", at("elsewhere"));
  EXPECT_EQ(later.code, 0) << later.output;
  TANREN_EXPECT_CONTAINS(later.output, "../s: 3 trials by loss; 3 have begun, 3 have ended");
}

TEST_F(Sweep, of_another_program_is_begun_and_reported_here) {
  write("other", "sampler = \"random\"\nscheduler = \"external\"\ntrials = 2",
        dimension("optimizer.learning_rate", kRange));
  const auto begun = tanren("sweep other.toml --out s");
  ASSERT_EQ(begun.code, 0) << begun.output;
  TANREN_EXPECT_CONTAINS(begun.output, "no trial yet");
  ASSERT_EQ(journal("s").size(), 1u);
  EXPECT_EQ(journal("s")[0]["steps"], 8);
  EXPECT_EQ(leaderboard("s")["done"], false);
  EXPECT_FALSE(fs::exists(at("s/trials")));
  append(at("s/journal.jsonl"),
         {R"({"start":0,"values":{"optimizer.learning_rate":"0.01"},"until":8})",
          R"({"end":0,"step":8,"value":0.5})",
          R"({"start":1,"values":{"optimizer.learning_rate":"0.02"},"until":8})",
          R"({"end":1,"step":4,"value":0.7})"});
  // The files of the other program stay, also where a link leads to runs elsewhere.
  fs::create_directories(at("elsewhere/checkpoints/step-4"));
  write_file(at("elsewhere/model.safetensors"), "weights");
  fs::create_directories(at("s/trials"));
  fs::create_directory_symlink(at("elsewhere"), at("s/trials/0001"));
  const auto reported = tanren("sweep s --set sweep.keep=1");
  ASSERT_EQ(reported.code, 0) << reported.output;
  EXPECT_TRUE(fs::exists(at("elsewhere/checkpoints/step-4")));
  EXPECT_TRUE(fs::exists(at("elsewhere/model.safetensors")));
  EXPECT_EQ(leaderboard("s")["done"], true);
  EXPECT_EQ(trials("s")[0]["state"], "finished");
  EXPECT_EQ(trials("s")[1]["state"], "stopped");
  // A damaged time.json does not stop the sweep.
  write_file(at("s/time.json"), "{");
  EXPECT_EQ(tanren("sweep s").code, 0);
  expect_code("sweep s --set sweep.scheduler=none", 2, {"scheduler: \"external\" → \"none\""});
}

TEST_F(Sweep, refuses_bad_input_before_anything_is_written) {
  const std::string rate = dimension("optimizer.learning_rate", kRange);
  const auto refuses = [&](const std::string& arguments, const std::vector<std::string>& parts) {
    expect_code("sweep " + arguments, 2, parts);
    EXPECT_FALSE(fs::exists(at("sweeps"))) << arguments;
  };
  refuses("run.toml", {"run.toml has no [[sweep.space]]; add a table for each key"});
  fs::create_directory(at("empty"));
  refuses("empty", {"empty is no folder of a sweep (no sweep.json in it)"});
  write("corner", "sampler = \"grid\"",
        dimension("model.hidden", "values = [\"[8]\", \"[0]\"]") +
            dimension("clip.norm", "values = [1, -1]"));
  refuses("corner.toml",
          {"[sweep] model.hidden=[0] clip.norm=1: ", "[sweep] model.hidden=[8] clip.norm=-1: "});
  write("key", "trials = 2", dimension("optimizer.learning_rat", kRange));
  refuses("key.toml", {"there is no such key; nearest: optimizer.learning_rate"});
  write("rungs", "trials = 2\nscheduler = \"asha\"\nfirst_rung = 3", rate);
  refuses("rungs.toml", {"sweep.first_rung is 3 and evaluate.every is 4"});
  write("stop", "trials = 2", rate);
  refuses("stop.toml --set run.stop_after=3", {"run.stop_after is what ends trials"});
  refuses("stop.toml --set sweep.keep=0", {"sweep.keep"});
  refuses("stop.toml --set sweep.devices=gpu", {"sweep.devices"});
  folder_.file("taken.txt", "mine");
  fs::create_directory(at("taken"));
  fs::rename(at("taken.txt"), at("taken/mine.txt"));
  refuses("stop.toml --out taken", {"taken holds other files and no sweep"});
  ASSERT_EQ(tanren("sweep stop.toml --quiet --out s").code, 0);
  std::string text = read_file(at("s/journal.jsonl"));
  text.replace(text.find("\"value\":"), 9, "\"value\":9");
  folder_.file("s/journal.jsonl", text);
  refuses("s", {"s/journal.jsonl:", "is not as it was written"});
  // Otherwise the trials of a new journal would take the results of the old ones.
  fs::remove(at("s/journal.jsonl"));
  refuses("s", {"s/journal.jsonl has 0 trials, and s/trials/000", "put back the journal"});
  refuses("s", {"put back the journal"});
}

}  // namespace
}  // namespace tanren::testing
