#include "tanren/run/run_folder.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/run/origin.h"

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace tanren {
namespace {

namespace fs = std::filesystem;

RunConfig config_of(int64_t seed = 0) {
  RunConfig config;
  config.run.steps = 4;
  config.run.seed = seed;
  config.model.kind = "mlp";
  config.data.train.kind = "synthetic";
  config.data.train.fields = {"inputs: float[3] in [-1, 1]", "labels: int[] in [0, 2]"};
  config.data.train.samples = 8;
  return config;
}

class RunFolderOf : public ::testing::Test {
 protected:
  fs::path at(const std::string& name) const { return folder_.path() / name; }
  std::string refusal(const fs::path& folder, const RunConfig& config) const {
    return testing::error_of<InputError>([&] { RunFolder taken(folder, config); });
  }

  testing::TemporaryFolder folder_;
};

TEST_F(RunFolderOf, one_start_is_refused_to_another_from_before_it_begins) {
  RunFolder first(at("run"), config_of());
  TANREN_EXPECT_CONTAINS(refusal(at("run"), config_of()), "is in use by another process");
  EXPECT_TRUE(fs::exists(at("run/lock")));  // the refused start removes nothing
  first.begin();
  TANREN_EXPECT_CONTAINS(refusal(at("run"), config_of()), "is in use by another process");
}

TEST_F(RunFolderOf, a_start_that_never_begins_is_gone_with_the_folders_that_it_made) {
  { const RunFolder unused(at("a/b/c"), config_of()); }
  EXPECT_FALSE(fs::exists(at("a")));
  fs::create_directory(at("mine"));
  { const RunFolder unused(at("mine/run"), config_of()); }
  { const RunFolder unused(at("mine"), config_of()); }
  EXPECT_TRUE(fs::is_empty(at("mine")));
}

TEST_F(RunFolderOf, a_run_whose_next_start_never_begins_or_is_refused_is_as_it_was) {
  RunFolder(at("run"), config_of()).begin();
  fs::create_directory(at("run/tensorboard"));
  const std::string summary = R"({"status": "finished"})",
                    before = read_file(at("run/config.toml"));
  folder_.file("run/summary.json", summary);
  RunConfig longer = config_of();
  longer.run.steps = 9;
  { const RunFolder unused(at("run"), longer); }
  TANREN_EXPECT_CONTAINS(refusal(at("run"), config_of(1)), "another config (run.seed: 0 → 1)");
  TANREN_EXPECT_CONTAINS(refusal(at("run"), config_of()), "is finished; raise run.steps");
  EXPECT_EQ(read_file(at("run/config.toml")), before);
  EXPECT_EQ(read_file(at("run/summary.json")), summary);
  RunFolder(at("run"), longer).begin();
  TANREN_EXPECT_CONTAINS(read_file(at("run/config.toml")), "steps = 9");
  TANREN_EXPECT_CONTAINS(read_file(at("run/summary.json")), "stopped");
}

// Otherwise a start that is killed would be reported with the earlier failure.
TEST_F(RunFolderOf, a_run_that_failed_has_no_summary_once_it_begins_again) {
  { RunFolder(at("run"), config_of()).begin(); }
  folder_.file("run/summary.json", R"({"status": "failed", "reason": "no room"})");
  { const RunFolder unused(at("run"), config_of()); }
  TANREN_EXPECT_CONTAINS(read_file(at("run/summary.json")), "no room");
  RunFolder(at("run"), config_of()).begin();
  EXPECT_FALSE(fs::exists(at("run/summary.json")));
}

TEST_F(RunFolderOf, a_run_that_failed_goes_on_as_one_that_stopped_at_its_checkpoint) {
  { RunFolder(at("run"), config_of()).begin(); }
  fs::create_directories(at("run/checkpoints/step-2"));
  fs::copy_file(at("run/config.toml"), at("run/checkpoints/step-2/config.toml"));
  folder_.file("run/checkpoints/step-2/COMPLETE", "");
  folder_.file("run/checkpoints/step-2/state.json", R"({"run": {"attempt": 3}})");
  folder_.file("run/summary.json", R"({"steps": 4, "attempts": 6, "samples_per_second": 7.5,
      "final_loss": 0.5, "final_loss.one": 0.5, "reason": "no room", "cause": "disk",
      "status": "failed"})");
  RunFolder(at("run"), config_of()).begin();
  const auto json = nlohmann::json::parse(read_file(at("run/summary.json")));
  const auto expected = nlohmann::json::parse(R"({"steps": 2, "attempts": 3, "skipped_steps": 1,
      "samples_per_second": 7.5, "final_loss": null, "status": "stopped"})");
  EXPECT_EQ(json, expected);
}

TEST_F(RunFolderOf, a_finished_run_goes_on_while_its_8_bit_model_is_unwritten) {
  { RunFolder(at("run"), config_of()).begin(); }
  folder_.file("run/summary.json", R"({"status": "finished", "unwritten": "no room"})");
  { RunFolder(at("run"), config_of()).begin(); }
  const auto json = nlohmann::json::parse(read_file(at("run/summary.json")));
  EXPECT_EQ(json, nlohmann::json::parse(R"({"status": "stopped"})"));
}

TEST_F(RunFolderOf, a_run_that_has_saved_begins_again_only_without_the_folder_of_its_checkpoints) {
  {
    RunFolder folder(at("run"), config_of());
    folder.begin();
    fs::create_directory(at("run/checkpoints"));
  }
  {
    RunFolder folder(at("run"), config_of());  // killed before its first save
    folder.begin();
    folder.note_saved();
  }
  EXPECT_THROW(RunFolder(at("run"), config_of()), InputError);
  fs::remove(at("run/checkpoints"));
  RunFolder(at("run"), config_of()).begin();
  fs::create_directory(at("run/checkpoints"));
  EXPECT_NO_THROW(RunFolder(at("run"), config_of())) << "killed before it saved again";
}

// Issue 26: older versions had no file `saved`, so only the summary reports saved steps.
TEST_F(RunFolderOf, a_run_whose_summary_tells_of_steps_has_saved) {
  RunFolder(at("run"), config_of()).begin();
  fs::create_directory(at("run/checkpoints"));
  folder_.file("run/summary.json", R"({"status": "stopped", "steps": 3})");
  TANREN_EXPECT_CONTAINS(refusal(at("run"), config_of()), "has no complete checkpoint");
  folder_.file("run/summary.json", R"({"status": "stopped", "steps": 0})");
  EXPECT_NO_THROW(RunFolder(at("run"), config_of()));
  folder_.file("run/summary.json", R"({"status": "failed", "steps": 3})");
  EXPECT_NO_THROW(RunFolder(at("run"), config_of())) << "it failed before it saved any";
}

// The maker of the folder gives up after another start has opened the lock file and before that
// start locks it: the locked file is then no longer the folder's, and the other start must create
// its own.
TEST_F(RunFolderOf, a_lock_on_a_file_that_was_taken_away_is_none) {
  auto maker = std::make_unique<RunFolder>(at("run"), config_of());
  const int stale = ::open(at("run/lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(stale, 0);
  maker.reset();
  ASSERT_EQ(::flock(stale, LOCK_EX | LOCK_NB), 0);
  RunFolder next(at("run"), config_of());
  EXPECT_TRUE(fs::exists(at("run/lock")));
  ::close(stale);
  TANREN_EXPECT_CONTAINS(refusal(at("run"), config_of()), "is in use by another process");
}

TEST_F(RunFolderOf, a_lock_that_is_a_link_into_nowhere_is_refused_and_not_waited_for) {
  fs::create_directory(at("run"));
  fs::create_symlink(at("none/lock"), at("run/lock"));
  TANREN_EXPECT_CONTAINS(refusal(at("run"), config_of()), "No such file or directory");
  EXPECT_TRUE(fs::is_symlink(at("run/lock")));
}

TEST_F(RunFolderOf, a_run_begins_beside_the_output_that_a_sweep_opened_for_it) {
  fs::create_directory(at("run"));
  folder_.file(std::string("run/") + kRunOutput, "");
  RunFolder run(at("run"), config_of());
  EXPECT_FALSE(run.has_begun());
}

TEST_F(RunFolderOf, a_folder_with_other_files_is_refused_and_left_as_it_was) {
  fs::create_directory(at("mine"));
  folder_.file("mine/notes.txt", "mine");
  TANREN_EXPECT_CONTAINS(refusal(at("mine"), config_of()), "holds other files and no run");
  EXPECT_FALSE(fs::exists(at("mine/lock")));
  EXPECT_TRUE(fs::exists(at("mine/notes.txt")));
}

// The run's evaluation read other numbers than its training, which was no error when the run began.
TEST_F(RunFolderOf, a_run_that_would_be_refused_by_now_goes_on_with_what_is_not) {
  RunConfig before = config_of();
  before.data.train = {};
  before.data.train.kind = "csv";
  before.data.train.path = "/data/rows.csv";
  before.data.eval = before.data.train;
  before.data.train.scale = 0.5;
  before.data.train.offset = 0.25;
  RunFolder(at("run"), before).begin();
  fs::create_directories(at("run/checkpoints/step-2"));
  fs::copy_file(at("run/config.toml"), at("run/checkpoints/step-2/config.toml"));
  RunConfig now = before;
  now.data.eval.scale = 0.5;
  now.data.eval.offset = 0.25;
  EXPECT_NO_THROW(RunFolder(at("run"), now));
  EXPECT_TRUE(changes_until(at("run/checkpoints/step-2"), now).empty());
  now.data.train.scale = 2;
  EXPECT_THROW(RunFolder(at("run"), now), ConfigError);
}

TEST_F(RunFolderOf, what_may_change_on_request_does_where_it_is_requested_and_there_alone) {
  RunFolder(at("run"), config_of()).begin();
  RunConfig other = config_of();
  other.clip.norm = 1;
  other.optimizer.learning_rate = 0.5;
  const std::string refused = refusal(at("run"), other);
  TANREN_EXPECT_CONTAINS(refused,
                         "(optimizer.learning_rate: 0.001 → 0.5; clip.norm: 0.0 → 1.0); go back to "
                         "it, ask for the change with --set optimizer.learning_rate=0.5 --set "
                         "clip.norm=1.0, or name another");
  EXPECT_THROW(RunFolder(at("run"), other, {"clip.norm"}), ConfigError);
  RunFolder(at("run"), other, {"clip.norm", "optimizer.learning_rate"}).begin();
  EXPECT_NO_THROW(RunFolder(at("run"), other));
  other.optimizer.beta1 = 0.5;
  EXPECT_THROW(RunFolder(at("run"), other, {"optimizer.beta1"}), ConfigError);
}

}  // namespace
}  // namespace tanren
