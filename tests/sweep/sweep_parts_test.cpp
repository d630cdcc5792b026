// What the verb sweep decides without a trial process: shares of the machine, the meaning of an
// end, and whether a process lives.
#include "tanren/base/testing.h"
#include "tanren/monitor/process_state.h"
#include "tanren/run/run_folder.h"
#include "cli/sweep/life_signs.h"
#include "cli/sweep/live_table.h"
#include "cli/sweep/sweep_report.h"
#include "cli/sweep/sweep_runner.h"
#include "cli/sweep/trial_end.h"
#include "cli/sweep/trial_run.h"

#include <unistd.h>

#include <csignal>
#include <limits>
#include <sstream>

namespace tanren::cli {
namespace {

RunConfig with(int64_t concurrent, const std::vector<std::string>& devices,
               const std::string& limit) {
  RunConfig config;
  config.sweep.concurrent = concurrent;
  config.sweep.devices = devices;
  config.memory.limit = limit;
  return config;
}

TEST(TrialShares, are_all_of_the_machine_for_one_trial_at_a_time) {
  const auto shares = shares_of(with(0, {}, "auto"), 8);
  ASSERT_EQ(shares.size(), 1u);
  EXPECT_EQ(shares[0].device, "");
  EXPECT_EQ(shares[0].memory_limit, "");
  EXPECT_EQ(shares[0].threads, 0);
}

TEST(TrialShares, of_several_have_their_part_of_cores_and_memory) {
  const auto automatic = shares_of(with(3, {}, "auto"), 8);
  ASSERT_EQ(automatic.size(), 3u);
  for (const TrialShare& share : automatic) {
    EXPECT_EQ(share.threads, 2);
    EXPECT_NEAR(std::stod(share.memory_limit), 0.3, 1e-12);
  }
  EXPECT_EQ(shares_of(with(4, {}, "8GiB"), 2)[3].memory_limit, "2147483648");
  EXPECT_EQ(shares_of(with(4, {}, "8GiB"), 2)[3].threads, 1);
  EXPECT_EQ(shares_of(with(2, {}, "0.5"), 2)[0].memory_limit, "0.25");
  EXPECT_EQ(shares_of(with(2, {}, "none"), 2)[0].memory_limit, "");
}

TEST(TrialShares, are_one_for_each_device_or_parts_of_it) {
  const auto each = shares_of(with(0, {"cuda:0", "cuda:1"}, "auto"), 8);
  ASSERT_EQ(each.size(), 2u);
  EXPECT_EQ(each[0].device, "cuda:0");
  EXPECT_EQ(each[1].device, "cuda:1");
  EXPECT_EQ(each[1].memory_limit, "");
  const auto three = shares_of(with(3, {"cuda:0", "cuda:1"}, "0.8"), 8);
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[2].device, "cuda:0");
  EXPECT_EQ(three[0].memory_limit, "0.4");
  EXPECT_EQ(three[1].memory_limit, "");
}

class TrialFolder : public ::testing::Test {
 protected:
  TrialEnd end(int code, int signal = 0) {
    return end_of_trial({.code = code, .signal = signal}, folder_.path());
  }
  void checkpoint(int64_t step) {
    const auto folder = folder_.path() / "checkpoints" / ("step-" + std::to_string(step));
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "COMPLETE").close();
  }
  testing::TemporaryFolder folder_;
};

TEST_F(TrialFolder, says_why_its_process_ended) {
  folder_.file(kRunOutput, "step 1\n[memory] no room\n\n");
  EXPECT_EQ(end(0).kind, TrialEnd::reached);
  EXPECT_EQ(end(130).kind, TrialEnd::interrupted);
  EXPECT_EQ(end(kNoDiskCode).kind, TrialEnd::no_disk);
  const std::pair<int, TrialOutcome> failures[] = {{1, TrialOutcome::failed},
                                                   {kDivergedCode, TrialOutcome::diverged},
                                                   {kRefusedCode, TrialOutcome::refused},
                                                   {kOutOfMemoryCode, TrialOutcome::out_of_memory}};
  for (const auto& [code, outcome] : failures) {
    EXPECT_EQ(end(code).kind, TrialEnd::failed);
    EXPECT_EQ(end(code).outcome, outcome);
    EXPECT_EQ(end(code).reason, "[memory] no room");
  }
  EXPECT_EQ(end(7).reason, "exit code 7: [memory] no room");
  EXPECT_EQ(end(0, SIGKILL).outcome, TrialOutcome::crashed);
  EXPECT_EQ(end(0, SIGKILL).reason, "signal 9 (Killed)");
  EXPECT_EQ(end(0, SIGABRT).reason, "signal 6 (Aborted): [memory] no room");
}

TEST_F(TrialFolder, without_room_for_a_line_tells_of_the_disk) {
  EXPECT_EQ(end(kNoDiskCode).reason,
            "[sweep] " + folder_.path().string() + " cannot be written to");
}

TEST_F(TrialFolder, has_the_reason_of_the_last_start_alone) {
  const std::string before = "stopped at step 4\n";
  folder_.file(kRunOutput, before);
  const auto said = static_cast<int64_t>(before.size());
  EXPECT_EQ(end_of_trial({.signal = SIGABRT}, folder_.path(), said).reason, "signal 6 (Aborted)");
  folder_.file(kRunOutput, before + "assertion failed\n");
  EXPECT_EQ(end_of_trial({.signal = SIGABRT}, folder_.path(), said).reason,
            "signal 6 (Aborted): assertion failed");
}

TEST_F(TrialFolder, whose_process_ended_early_has_not_come_to_its_goal) {
  const Trial part{.id = 0, .until = 8}, whole{.id = 0};
  checkpoint(4);
  EXPECT_FALSE(has_come(part, folder_.path()));
  EXPECT_FALSE(has_come(whole, folder_.path()));
  checkpoint(8);
  EXPECT_TRUE(has_come(part, folder_.path()));
  EXPECT_FALSE(has_come(whole, folder_.path()));
  const auto kind = [&](TrialEnd::Kind before, const Trial& trial) {
    return checked({.kind = before}, trial, folder_.path(), "loss").kind;
  };
  EXPECT_EQ(kind(TrialEnd::reached, part), TrialEnd::reached);
  EXPECT_EQ(kind(TrialEnd::reached, whole), TrialEnd::failed);
  EXPECT_EQ(kind(TrialEnd::failed, part), TrialEnd::failed);  // the log has no value
  folder_.file("log.jsonl", "{\"evaluation\":{\"loss\":0.5},\"step\":8}\n");
  EXPECT_EQ(kind(TrialEnd::failed, part), TrialEnd::reached);
  EXPECT_EQ(kind(TrialEnd::no_disk, part), TrialEnd::no_disk);
  folder_.file("summary.json", "{\"status\":\"finished\"}");
  EXPECT_TRUE(has_come(whole, folder_.path()));
}

// A removal that was cut off must not leave a checkpoint that looks complete.
TEST_F(TrialFolder, of_a_worse_trial_loses_checkpoints_also_those_that_a_kill_left) {
  SweepPlace place{.folder = folder_.path(), .source = {}, .config = with(0, {}, "auto")};
  place.config.sweep.keep = 1;
  Study study(Space{{.key = "a", .values = {"1", "2"}}},
              {.sampler = "grid", .scheduler = "none", .steps = 8});
  const auto worse = study.ask(), better = study.ask();
  study.tell(*worse, 0.5);
  study.tell(*better, 0.25);
  for (const int64_t id : {0, 1}) {
    std::filesystem::create_directories(place.trial(id) / "checkpoints/step-8");
  }
  std::filesystem::create_directories(place.trial(0) / ".tmp-checkpoints-unneeded/step-4");
  SweepReport(place, study, /*quiet=*/true).keep_files();
  EXPECT_TRUE(std::filesystem::is_empty(place.trial(0)));
  EXPECT_TRUE(std::filesystem::exists(place.trial(1) / "checkpoints/step-8"));
}

TEST_F(TrialFolder, of_a_confirming_run_gives_its_last_value) {
  SweepPlace place{.folder = folder_.path(), .source = {}, .config = with(0, {}, "auto")};
  Study study(Space{{.key = "a", .values = {"1"}}},
              {.sampler = "grid", .scheduler = "none", .steps = 8});
  study.tell(*study.ask(), 0.5);
  const ConfirmingRun file{.trial = {}, .seed = 1}, own{.trial = 0, .seed = 1};
  EXPECT_EQ(place.confirming(file), folder_.path() / "confirm/file-seed-1");
  EXPECT_EQ(place.confirming(own), folder_.path() / "confirm/0000-seed-1");
  folder_.file("log.jsonl",
               "{\"evaluation\":{\"value\":0.5},\"step\":4}\n"
               "{\"evaluation\":{\"value\":0.25},\"step\":8}\n");
  tell_reached(study, own, folder_.path());
  EXPECT_EQ(study.confirmed()[0].value, 0.25);
  EXPECT_EQ(study.confirmed()[0].step, 8);
  folder_.file("log.jsonl", "{\"evaluation\":{\"other\":1},\"step\":8}\n");
  tell_reached(study, file, folder_.path());
  EXPECT_EQ(study.confirmed()[1].outcome, TrialOutcome::failed);
  // No run resumes from this checkpoint.
  std::filesystem::create_directories(place.confirming(own) / "checkpoints/step-8");
  SweepReport(place, study, /*quiet=*/true).keep_files();
  EXPECT_TRUE(std::filesystem::is_empty(place.confirming(own)));
}

TEST_F(TrialFolder, is_a_line_of_the_live_table) {
  Study study(Space{{.key = "a", .values = {"1", "2", "3"}}},
              {.sampler = "grid", .scheduler = "none", .steps = 8});
  study.tell(*study.ask(), 0.5);
  study.ask();
  folder_.file("log.jsonl", "{\"attempt\":4,\"step\":4,\"loss\":0.75}\n");
  const LiveRun run{.name = "trial 0001", .values = "a=2", .folder = folder_.path(), .until = 8};
  const LiveRun other{.name = "trial 0002", .values = "a=3", .folder = folder_.path() / "none"};
  EXPECT_EQ(live_text(study, {run, other}, 24, 80),
            "            step  loss  values\n"
            "trial 0001  4/8   0.75  a=2\n"
            "trial 0002  -     -     a=3\n"
            "1 finished, 1 running; best: trial 0000, value 0.5\n");
  EXPECT_EQ(live_text(study, {run, other}, 4, 12),
            "            \n"
            "trial 0001  \n"
            "and 1 more\n"
            "1 finished, \n");
  EXPECT_EQ(live_text(study, {run, other}, 1, 10), "1 finished\n");
}

TEST(LiveTable, is_redrawn_in_place_and_leaves_nothing) {
  using std::chrono::milliseconds;
  std::ostringstream out;
  const auto start = LiveTable::Clock::now();
  {
    int64_t columns = 80;
    LiveTable table(out, [&] { return columns; });
    EXPECT_TRUE(table.is_due(start));
    table.clear();
    EXPECT_EQ(out.str(), "");
    table.draw("a\nb\n", start);
    EXPECT_EQ(out.str(), "\ra\x1b[K\nb\x1b[K\n\x1b[J");
    EXPECT_FALSE(table.is_due(start + milliseconds(499)));
    EXPECT_TRUE(table.is_due(start + milliseconds(500)));
    out.str("");
    table.draw("c\n", start);
    EXPECT_EQ(out.str(), "\r\x1b[2Ac\x1b[K\n\x1b[J");
    // At a width of 3 columns, the first of the two lines takes two rows.
    table.draw("four\nd\n", start);
    columns = 3;
    out.str("");
    table.draw("e\n", start);
    EXPECT_EQ(out.str(), "\r\x1b[3Ae\x1b[K\n\x1b[J");
    out.str("");
  }
  EXPECT_EQ(out.str(), "\r\x1b[1A\x1b[J");
}

TEST_F(TrialFolder, is_where_the_trial_was_to_come_only_with_checkpoint_and_evaluation) {
  const Trial trial{.id = 0, .until = 8};
  EXPECT_FALSE(is_there(trial, folder_.path(), "loss"));
  folder_.file("log.jsonl",
               "{\"attempt\":4,\"step\":4}\n{\"evaluation\":{\"loss\":0.5},\"step\":4}\n");
  checkpoint(8);
  EXPECT_FALSE(is_there(trial, folder_.path(), "loss"));
  folder_.file("log.jsonl",
               "{\"evaluation\":{\"loss\":0.5},\"step\":4}\n{\"attempt\":8,\"step\":8}\n"
               "{\"evaluation\":{\"loss\":0.25},\"step\":8}\n");
  EXPECT_TRUE(is_there(trial, folder_.path(), "loss"));
  EXPECT_FALSE(is_there(trial, folder_.path(), "accuracy"));
  std::filesystem::remove_all(folder_.path() / "checkpoints");
  EXPECT_FALSE(is_there(trial, folder_.path(), "loss"));
  folder_.file("summary.json", "{\"status\":\"finished\"}");  // early_stop ended it before
  EXPECT_TRUE(is_there(trial, folder_.path(), "loss"));
  EXPECT_EQ(last_step(folder_.path()), 8);
}

TEST_F(TrialFolder, tells_the_value_at_its_goal_and_all_before) {
  Study study(Space{{.key = "a", .values = {"1", "2", "3"}}},
              {.sampler = "grid", .scheduler = "none", .steps = 8});
  folder_.file("log.jsonl",
               "{\"evaluation\":{\"value\":0.5},\"step\":4}\n"
               "{\"evaluation\":{\"value\":0.25},\"step\":8}\n"
               "{\"evaluation\":{\"value\":0.75},\"step\":12}\n");
  tell_reached(study, *study.ask(), folder_.path());
  const std::vector<std::pair<int64_t, double>> metrics = {{4, 0.5}, {8, 0.25}};
  EXPECT_EQ(study.records()[0].metrics, metrics);
  EXPECT_EQ(study.records()[0].value, 0.25);
  folder_.file("log.jsonl", "{\"evaluation\":{\"value\":null},\"step\":8}\n");
  tell_reached(study, *study.ask(), folder_.path());
  EXPECT_EQ(study.records()[1].outcome, TrialOutcome::diverged);
  folder_.file("log.jsonl", "{\"evaluation\":{\"other\":1},\"step\":8}\n");
  tell_reached(study, *study.ask(), folder_.path());
  EXPECT_EQ(study.records()[2].outcome, TrialOutcome::failed);
  EXPECT_EQ(study.records()[2].reason, "no evaluation in its log has value");
}

TEST_F(TrialFolder, shows_life_by_its_log_and_its_process_by_processor_time) {
  using std::chrono::seconds;
  const auto start = LifeSigns::Clock::now();
  // A process about which nothing is known.
  LifeSigns still(std::numeric_limits<pid_t>::max(), folder_.path() / "log.jsonl", start);
  EXPECT_EQ(still.silence(start + seconds(5)), seconds(5));
  folder_.file("log.jsonl", "a line\n");
  EXPECT_EQ(still.silence(start + seconds(6)), seconds(0));
  EXPECT_EQ(still.silence(start + seconds(9)), seconds(3));
  still.begin_anew(start + seconds(20));
  EXPECT_EQ(still.silence(start + seconds(21)), seconds(1));
  // This process has used CPU time before, and uses none between two checks.
  const auto used = read_process(::getpid());
  ASSERT_TRUE(used);
  LifeSigns own(::getpid(), folder_.path() / "none", start);
  volatile uint64_t sum = 0;
  while (read_process(::getpid())->cpu_seconds < used->cpu_seconds + 0.1) sum = sum + 1;
  EXPECT_EQ(own.silence(start + seconds(1)), seconds(0));
  EXPECT_EQ(own.silence(start + seconds(1000)), seconds(999));
}

}  // namespace
}  // namespace tanren::cli
