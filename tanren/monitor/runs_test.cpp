#include "tanren/monitor/runs.h"
#include "tanren/monitor/monitor_test_util.h"

#include <gtest/gtest.h>
#include <sys/file.h>

#include <fcntl.h>

#include <algorithm>
#include <chrono>

namespace tanren {
namespace {

namespace fs = std::filesystem;

class Runs : public ::testing::Test {
 protected:
  Runs() { root_.machine(); }

  // A folder as a run leaves it, with one attempt logged.
  fs::path run_folder(const std::string& name) {
    fs::path folder = folder_.path() / name;
    fs::create_directories(folder);
    for (const char* file : {"config.toml", "lock"}) folder_.file(name + "/" + file, "");
    folder_.file(
        name + "/plan.txt",
        "model        mlp  asked    x\ntotal_steps  40   planned  20 epochs × 2 batches\n");
    folder_.file(name + "/log.jsonl",
                 "{\"attempt\":10,\"step\":10,\"samples\":4,\"loss\":0.5,\"verdict\":\"apply\","
                 "\"timing\":{\"seconds\":0.25}}\n{\"attempt\":11,");
    return folder;
  }

  FixtureRoot root_;
  testing::TemporaryFolder folder_;
};

TEST_F(Runs, no_proc_no_processes_and_other_processes_are_no_runs) {
  EXPECT_TRUE(find_runs(folder_.path()).empty());
  EXPECT_TRUE(find_runs(root_.path()).empty());
  root_.process(10, "other");
  folder_.file("lock", "");
  root_.open(10, 3, folder_.path() / "lock", 10);  // not a run's lock
  root_.open(10, 4, "/dev/null");
  EXPECT_TRUE(find_runs(root_.path()).empty());
}

TEST_F(Runs, a_run_folder_that_is_gone_or_whose_process_ended_is_passed_over) {
  const auto gone = run_folder("gone"), ended = run_folder("ended");
  root_.process(10, "tanren");
  root_.open(10, 3, gone.string() + "/lock (deleted)", 10);
  root_.open(10, 4, folder_.path() / "never/lock", 10);
  root_.process(11, "tanren");
  root_.open(11, 3, ended / "lock", 11);
  fs::remove(root_.path() / "proc/11/stat");
  EXPECT_TRUE(find_runs(root_.path()).empty());
}

TEST_F(Runs, a_process_whose_files_may_not_be_seen_is_passed_over) {
  root_.process(9, "another_users");
  fs::remove_all(root_.path() / "proc/9/fd");
  root_.process(10, "tanren");
  root_.open(10, 3, run_folder("r") / "lock", 10);
  EXPECT_EQ(find_runs(root_.path()).size(), 1u);
}

TEST_F(Runs, a_run_is_told_with_step_total_speed_and_what_its_process_uses) {
  const auto folder = run_folder("r");
  root_.process(10, "own_program");
  root_.open(10, 3, folder / "lock", 10);
  const auto runs = find_runs(root_.path());
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].folder, folder);
  EXPECT_EQ(runs[0].process.pid, 10);
  EXPECT_EQ(runs[0].process.name, "own_program");
  EXPECT_EQ(runs[0].total_steps, 40);
  ASSERT_TRUE(runs[0].log);
  EXPECT_EQ(runs[0].log->step, 10);
  EXPECT_DOUBLE_EQ(*runs[0].seconds_left(), 30 * 0.25);
  EXPECT_LT(*runs[0].log_age_seconds, 600);
  EXPECT_FALSE(runs[0].is_starting());
}

TEST_F(Runs, a_run_without_log_or_plan_is_there_and_starting) {
  const auto folder = run_folder("r");
  fs::remove(folder / "log.jsonl");
  fs::remove(folder / "plan.txt");
  root_.process(10, "tanren");
  root_.open(10, 3, folder / "lock", 10);
  const auto runs = find_runs(root_.path());
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_TRUE(runs[0].is_starting());
  EXPECT_FALSE(runs[0].log);
  EXPECT_FALSE(runs[0].seconds_left());
  EXPECT_EQ(runs[0].total_steps, 0);
}

TEST_F(Runs, a_log_older_than_the_process_is_of_a_session_before) {
  const auto folder = run_folder("r");
  fs::last_write_time(folder / "log.jsonl",
                      fs::file_time_type::clock::now() - std::chrono::hours(5));
  root_.process(10, "tanren");  // up for less than 1000 s
  root_.open(10, 3, folder / "lock", 10);
  EXPECT_TRUE(find_runs(root_.path())[0].is_starting());
}

TEST_F(Runs, of_several_processes_on_a_folder_the_one_that_holds_the_lock_is_the_run) {
  const auto folder = run_folder("r");
  for (const int64_t pid : {8, 10, 12}) root_.process(pid, "tanren");
  root_.open(8, 3, folder / "lock");       // about to be refused
  root_.open(10, 3, folder / "lock", 10);  // the run
  root_.open(12, 3, folder / "lock", 10);  // its forked child
  const auto runs = find_runs(root_.path());
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].process.pid, 10);
}

TEST_F(Runs, several_runs_stand_in_the_order_of_their_pids) {
  const auto first = run_folder("z"), second = run_folder("a");
  root_.process(5, "tanren");
  root_.process(77, "tanren");
  root_.open(77, 3, second / "lock", 77);
  root_.open(5, 9, first / "lock", 5);
  const auto runs = find_runs(root_.path());
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].folder, first);
  EXPECT_EQ(runs[1].folder, second);
}

TEST_F(Runs, a_lock_that_this_process_holds_is_found_through_the_kernel_and_not_disturbed) {
  const auto folder = run_folder("held");
  const int lock = ::open((folder / "lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  const auto entries = [&] { return std::distance(fs::directory_iterator(folder), {}); };
  const auto before = entries();
  const auto runs = find_runs();
  const auto own =
      std::find_if(runs.begin(), runs.end(), [&](const auto& run) { return run.folder == folder; });
  ASSERT_NE(own, runs.end());
  EXPECT_EQ(own->process.pid, ::getpid());
  EXPECT_EQ(entries(), before);
  EXPECT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  ::close(lock);
}

}  // namespace
}  // namespace tanren
