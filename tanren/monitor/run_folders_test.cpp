#include "tanren/monitor/run_folders.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <fstream>

namespace tanren {
namespace {

namespace fs = std::filesystem;

class RunFolders : public ::testing::Test {
 protected:
  // A folder as a run leaves it after `attempts` attempts.
  fs::path run_folder(const std::string& name, int attempts, const std::string& summary = "") {
    fs::create_directories(folder_.path() / name);
    for (const char* file : {"config.toml", "lock"}) folder_.file(name + "/" + file, "");
    folder_.file(name + "/plan.txt", "total_steps  40   asked  applied updates\n");
    std::string log;
    for (int i = 1; i <= attempts; ++i) {
      const std::string n = std::to_string(i);
      log += "{\"attempt\":" + n + ",\"step\":" + n + ",\"samples\":4,\"loss\":0." + n +
             ",\"verdict\":\"apply\",\"timing\":{\"seconds\":0.25}}\n";
    }
    folder_.file(name + "/log.jsonl", log);
    if (!summary.empty()) folder_.file(name + "/summary.json", summary);
    return folder_.path() / name;
  }
  RunFolderState state(const fs::path& folder, const std::set<fs::path>& running = {}) const {
    return run_folder_state(folder, running);
  }

  testing::TemporaryFolder folder_;
};

// None of these files may hold the reader up.
TEST_F(RunFolders, with_pipes_or_absurd_files_are_damaged) {
  for (const char* name : {"config.toml", "plan.txt", "log.jsonl", "summary.json"}) {
    const fs::path run = run_folder(std::string("pipe-") + name, 3);
    fs::remove(run / name);
    ASSERT_EQ(::mkfifo((run / name).c_str(), 0600), 0);
    EXPECT_EQ(state(run).stage, RunStage::damaged) << name;
    EXPECT_EQ(state(run).remark, std::string(name) + " is no regular file");
  }
  const fs::path large = run_folder("large", 3, "{}");
  fs::resize_file(large / "summary.json", uintmax_t{65} << 20);
  EXPECT_EQ(state(large).remark, "summary.json is too large");
  const fs::path endless = run_folder("endless", 0);
  fs::resize_file(endless / "log.jsonl", uintmax_t{40} << 20);  // one line of zeros
  folder_.file("endless/tail", "\n{\"evaluation\":{\"loss\":0.5},\"step\":4}\n");
  std::ofstream(endless / "log.jsonl", std::ios::app | std::ios::binary)
      << std::ifstream(endless / "tail", std::ios::binary).rdbuf();
  const auto best = best_evaluation(endless / "log.jsonl", "loss", true);
  ASSERT_TRUE(best);
  EXPECT_EQ(best->step, 4);
}

TEST_F(RunFolders, are_found_beside_a_config_of_the_folder_and_checkpoints_are_none) {
  const fs::path run = run_folder("all/run", 3);
  folder_.file("all/config.toml", "");
  EXPECT_EQ(run_folders_in(folder_.path() / "all"), std::vector<fs::path>{run});
  fs::create_directories(folder_.path() / "new/data");
  folder_.file("new/config.toml", "");
  EXPECT_EQ(run_folders_in(folder_.path() / "new"), std::vector<fs::path>{folder_.path() / "new"});
  const fs::path step = run / "checkpoints/step-3";
  fs::create_directories(step);
  for (const char* name : {"config.toml", "plan.txt", "manifest.json"}) {
    folder_.file("all/run/checkpoints/step-3/" + std::string(name), "");
  }
  EXPECT_EQ(run_folders_in(run / "checkpoints"), std::vector<fs::path>{step});
  EXPECT_EQ(state(step).stage, RunStage::no_run);
  EXPECT_EQ(state(step).remark, "a checkpoint of a run");
  EXPECT_EQ(run_folders_in(run), std::vector<fs::path>{run});
}

TEST_F(RunFolders, that_are_no_runs_or_damaged_are_told_as_such) {
  fs::create_directories(folder_.path() / "empty");
  folder_.file("empty/lock", "");
  EXPECT_EQ(state(folder_.path() / "empty").stage, RunStage::no_run);
  EXPECT_EQ(state(folder_.path() / "empty").remark, "empty");
  fs::create_directories(folder_.path() / "photos/cats");
  EXPECT_EQ(state(folder_.path() / "photos").remark, "no config.toml in it");
  fs::create_directories(folder_.path() / "mine");
  folder_.file("mine/config.toml", "");
  EXPECT_EQ(state(folder_.path() / "mine").stage, RunStage::begun_by_none);
  for (const char* torn : {"{\"steps\": 4,", "", "[]", "\xff\xfe"}) {
    const RunFolderState one = state(run_folder("torn", 3, std::string(torn) + " "));
    EXPECT_EQ(one.stage, RunStage::damaged) << torn;
    TANREN_EXPECT_CONTAINS(one.remark, "summary.json");
  }
  EXPECT_EQ(state(folder_.path() / "gone").stage, RunStage::no_run);
  fs::create_directories(folder_.path() / "odd/log.jsonl");
  folder_.file("odd/config.toml", "");
  folder_.file("odd/plan.txt", "total_steps\n\xff");
  EXPECT_EQ(state(folder_.path() / "odd").stage, RunStage::damaged);
  EXPECT_EQ(state(folder_.path() / "odd").remark, "log.jsonl is no regular file");
  EXPECT_THROW(run_folders_in(folder_.path() / "none"), InputError);
  EXPECT_THROW(run_folders_in(folder_.path() / "mine/config.toml"), InputError);
}

TEST_F(RunFolders, have_stopped_finished_or_failed_by_what_the_last_session_left) {
  const fs::path failed = run_folder("failed", 7);
  EXPECT_EQ(state(failed).stage, RunStage::failed);
  EXPECT_EQ(state(failed).step, 7);
  EXPECT_EQ(state(failed).total_steps, 40);
  EXPECT_EQ(*state(failed).loss, 0.7);
  EXPECT_LT(*state(failed).age_seconds, 3600);
  const std::string stopped =
      R"({"steps": 5, "attempts": 5, "final_loss": 0.5, "best.step": 4, "best.accuracy": 0.75,)"
      R"( "reason": "run.max_time = 8h", "status": "stopped"})";
  const RunFolderState told = state(run_folder("stopped", 5, stopped));
  EXPECT_EQ(told.stage, RunStage::stopped);
  EXPECT_EQ(told.remark, "run.max_time = 8h");
  EXPECT_EQ(told.best_metric, "accuracy");
  EXPECT_EQ(told.best->step, 4);
  EXPECT_EQ(told.best->value, 0.75);
  // A later session has made attempts, and has not said how it ended.
  EXPECT_EQ(state(run_folder("killed", 6, stopped)).stage, RunStage::failed);
  EXPECT_EQ(state(run_folder("killed", 6, stopped)).remark, "");  // run.max_time did not end it
  const std::string error =
      R"({"steps": 5, "attempts": 6, "reason": "[guard] step 6", "cause": "non_finite",)"
      R"( "status": "failed"})";
  EXPECT_EQ(state(run_folder("error", 6, error)).stage, RunStage::failed);
  EXPECT_EQ(state(run_folder("error", 6, error)).remark, "[guard] step 6");
  const std::string finished = R"({"steps": 40, "attempts": 41, "status": "finished"})";
  EXPECT_EQ(state(run_folder("finished", 8, finished)).stage, RunStage::finished);
  const fs::path running = run_folder("running", 6, stopped);
  EXPECT_EQ(state(running, {fs::canonical(running)}).stage, RunStage::running);
  EXPECT_EQ(state(running, {fs::canonical(failed)}).stage, RunStage::failed);
  // Without a log the summary is all there is.
  const fs::path silent = run_folder("silent", 0, stopped);
  fs::remove(silent / "log.jsonl");
  EXPECT_EQ(state(silent).step, 5);
  EXPECT_EQ(*state(silent).loss, 0.5);
}

TEST_F(RunFolders, are_listed_by_name_and_a_run_folder_is_itself_the_list) {
  const fs::path b = run_folder("b", 1), a = run_folder("a", 1);
  fs::create_directories(folder_.path() / ".hidden");
  folder_.file("file", "");
  fs::create_directory_symlink(folder_.path() / "nowhere", folder_.path() / "dangling");
  EXPECT_EQ(run_folders_in(folder_.path()), (std::vector<fs::path>{a, b}));
  EXPECT_EQ(run_folders_in(b), (std::vector<fs::path>{b}));
}

TEST_F(RunFolders, know_the_best_of_all_evaluations_in_the_direction_of_the_metric) {
  const fs::path log = folder_.path() / "log.jsonl";
  EXPECT_FALSE(best_evaluation(log, "loss", true));
  folder_.file("log.jsonl",
               "{\"attempt\":1,\"step\":1,\"loss\":0.1}\n"
               "{\"evaluation\":{\"loss\":0.5,\"accuracy\":0.25},\"step\":1}\n"
               "{\"evaluation\":{\"loss\":null,\"accuracy\":0.75},\"step\":2}\n"
               "{\"evaluation\":{\"loss\":0.25,\"accuracy\":0.75},\"step\":3}\n"
               "{\"evaluation\":{\"loss\":0.3");
  EXPECT_EQ(best_evaluation(log, "loss", true)->step, 3);
  EXPECT_EQ(best_evaluation(log, "loss", false)->value, 0.5);
  EXPECT_EQ(best_evaluation(log, "accuracy", false)->step, 2);
  EXPECT_FALSE(best_evaluation(log, "f1_macro", false));
}

}  // namespace
}  // namespace tanren
