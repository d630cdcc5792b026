// A failed run writes its cause to summary.json as data. It can be resumed later as if it had not
// failed. Issue 29.
#include "tests/own/fragile.h"

#include "tanren/base/file.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <limits>
#include <new>
#include <optional>

namespace tanren::testing {
namespace {

nlohmann::json summary_in(const OwnProgram& program) {
  return nlohmann::json::parse(read_file(program.run() / "summary.json"));
}

// The loss of the third batch is not a number.
Task losing_its_loss(const ModelOptions& options, const DataInfo& info) {
  Task task = fragile_task(options, info);
  task.phases[0].forward = [inner = task.phases[0].forward](const Batch& batch) {
    Terms terms = inner(batch);
    if (!is_dry(batch["inputs"]) && has_sample(batch.ids, 16)) {
      terms[0].sum = terms[0].sum * std::numeric_limits<double>::quiet_NaN();
    }
    return terms;
  };
  return task;
}

// Expects the run to end with `code`, and its summary to hold `cause` and the line printed to
// stderr.
void expect_failure(OwnProgram& program, int code, const std::string& cause,
                    const std::vector<std::string>& words = {}) {
  EXPECT_EQ(program.go("run", words), code) << program.err;
  const auto summary = summary_in(program);
  EXPECT_EQ(summary["status"], "failed");
  EXPECT_EQ(summary["cause"], cause);
  EXPECT_TRUE(program.err.ends_with(summary["reason"].get<std::string>() + "\n"))
      << program.err << summary["reason"];
}

TEST(OwnFailures, of_the_guard_are_told_with_what_was_reached_and_forgotten_by_the_next_start) {
  const std::vector<std::string> halting{"--set", "guard.nan_loss=stop"};
  OwnProgram whole, cut;
  train(whole);
  cut.factory = losing_its_loss;
  expect_failure(cut, 1, "non_finite", halting);
  const auto summary = summary_in(cut);
  EXPECT_EQ(summary["steps"], 2);
  EXPECT_EQ(summary["attempts"], 3);
  EXPECT_EQ(summary["skipped_steps"], 1);
  EXPECT_TRUE(summary["final_loss"].is_null());
  EXPECT_GT(summary["wall_seconds"], 0.0);
  EXPECT_GT(summary["peak_memory_bytes"], 0);
  EXPECT_FALSE(summary.contains("startup_seconds"));
  EXPECT_FALSE(summary.contains("samples_per_second"));
  cut.factory = fragile_task;
  ASSERT_EQ(cut.go("run", halting), 0) << cut.err;
  EXPECT_EQ(summary_in(cut)["status"], "finished");
  EXPECT_FALSE(summary_in(cut).contains("cause"));
  EXPECT_FALSE(summary_in(cut).contains("reason"));
}

TEST(OwnFailures, of_several_ranks_are_told_by_the_first) {
  OwnProgram program;
  program.factory = losing_its_loss;
  auto words = kTwoRanks;
  words.insert(words.end(), {"--set", "guard.nan_loss=stop"});
  expect_failure(program, 1, "non_finite", words);
  EXPECT_EQ(summary_in(program)["steps"], 2);
}

TEST(OwnFailures, of_memory_of_the_data_and_of_the_users_code_have_their_causes) {
  OwnProgram memory, data, code;
  memory.factory = before_forward(
      [calls = std::make_shared<int64_t>(0)](const Batch&) {
        if (++*calls > 2) throw std::bad_alloc();
      },
      fragile_task);
  expect_failure(memory, 1, "memory");
  data.factory = fragile_task;
  data.spoil_train = [](Collated&, const std::vector<int64_t>& indices) {
    if (indices.back() >= 16) throw std::runtime_error("no such row");
  };
  expect_failure(data, 2, "data");
  EXPECT_EQ(summary_in(data)["steps"], 2);
  const double loss = summary_in(data)["final_loss"].get<double>();
  EXPECT_TRUE(loss > 0.0) << "of the last update, from the log";
  code.factory = before_forward(failing_from(6), fragile_task);
  expect_failure(code, 1, "other");
  EXPECT_EQ(summary_in(code)["steps"], 2);
}

TEST(OwnFailures, of_the_disk_are_told_if_the_summary_still_has_room) {
  OwnProgram program;
  std::optional<FullDiskScope> full;
  program.factory = before_forward(
      [&](const Batch&) {
        if (!full) full.emplace(6000);  // less than a checkpoint's config, more than a summary
      },
      fragile_task);
  EXPECT_EQ(program.go("run"), 1);
  full.reset();
  const auto summary = summary_in(program);
  EXPECT_EQ(summary["cause"], "disk");
  EXPECT_TRUE(program.err.ends_with(summary["reason"].get<std::string>() + "\n")) << program.err;
  EXPECT_EQ(summary["steps"], 4);
  ASSERT_TRUE(std::filesystem::exists(program.run() / "checkpoints"));
  program.factory = fragile_task;
  EXPECT_EQ(program.go("run"), 0) << "it saved none of these steps: " << program.err;
}

TEST(OwnFailures, keep_the_figures_of_the_session_before) {
  OwnProgram program;
  program.factory = fragile_task;
  ASSERT_EQ(program.go("run", {"--set", "run.stop_after=2"}), 0) << program.err;
  const auto before = summary_in(program);
  ASSERT_EQ(before["status"], "stopped");
  ASSERT_TRUE(before.contains("samples_per_second"));
  program.factory = before_forward(failing_from(3), fragile_task);  // in step 4
  expect_failure(program, 1, "other");
  auto failed = summary_in(program);
  EXPECT_EQ(failed["steps"], 3);
  EXPECT_EQ(failed["samples_per_second"], before["samples_per_second"]);
  EXPECT_EQ(failed["startup_seconds"], before["startup_seconds"]);
  EXPECT_NE(failed["final_loss"], before["final_loss"]);
}

TEST(OwnFailures, of_a_damaged_step_folder_are_told_with_its_step) {
  OwnProgram program;
  program.factory = fragile_task;
  ASSERT_EQ(program.go("run", {"--set", "run.stop_after=2"}), 0) << program.err;
  const auto before = summary_in(program);
  write_file(program.run() / "checkpoints/step-2/state.json", "damaged");
  EXPECT_NE(program.go("run"), 0);
  const auto summary = summary_in(program);
  EXPECT_EQ(summary["status"], "failed");
  EXPECT_EQ(summary["steps"], 2);
  EXPECT_EQ(summary["final_loss"], before["final_loss"]);
  EXPECT_EQ(summary["peak_memory_bytes"], before["peak_memory_bytes"]);
}

TEST(OwnFailures, that_cannot_be_told_are_the_first_error_all_the_same) {
  OwnProgram program;
  program.factory = before_forward(
      [&](const Batch&) {
        std::filesystem::create_directories(program.run() / "summary.json/in the way");
        throw std::runtime_error("it failed");
      },
      fragile_task);
  EXPECT_EQ(program.go("run"), 1);
  TANREN_EXPECT_CONTAINS(program.err, "[train] step 1, microbatch 0");
  TANREN_EXPECT_CONTAINS(program.err, ": it failed; fix the task's forward");
  program.expect_one_line();
}

TEST(OwnFailures, before_a_run_has_begun_leave_its_folder_as_it_was) {
  OwnProgram program;
  train(program);
  const std::string before = read_file(program.run() / "summary.json");
  EXPECT_EQ(program.go("run"), 2) << "it is finished";
  EXPECT_EQ(read_file(program.run() / "summary.json"), before);
  OwnProgram unread;
  unread.on_open = [] { throw std::runtime_error("no such data"); };
  EXPECT_NE(unread.go("run"), 0);
  EXPECT_FALSE(std::filesystem::exists(unread.run()));
}

}  // namespace
}  // namespace tanren::testing
