#include "tanren/metrics/tensorboard_sink.h"

#include "tanren/base/file.h"
#include "tanren/base/log.h"
#include "tanren/base/testing.h"
#include "tanren/formats/png.h"
#include "tanren/metrics/event_cut.h"
#include "tanren/metrics/event_reader_test_util.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::read_curves;
using testing::read_events;

// A folder, and the lines that the library logs.
class TensorboardSink : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = set_log_sink([this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      told_ += std::string(line) + "\n";
    });
  }
  void TearDown() override { set_log_sink(before_); }

  std::unique_ptr<Sink> make(TensorboardOptions options = {}) const {
    return make_tensorboard_sink(folder(), options);
  }
  fs::path folder() const { return root_.path() / "tensorboard"; }
  std::string told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }
  int64_t lines_told() {
    const auto text = told();
    return std::count(text.begin(), text.end(), '\n');
  }

  testing::TemporaryFolder root_;
  LogSink before_;
  std::mutex mutex_;
  std::string told_;
};

StepReport point(int64_t step) {
  StepReport report;
  report.attempt = step;
  report.step = step;
  report.samples = 32;
  report.seconds = 0.5;
  report.wait_seconds = 0.125;
  report.memory_bytes = 1 << 20;
  report.objectives.resize(1);
  auto& objective = report.objectives[0];
  objective.name = "loss";
  objective.loss = 1.0 / static_cast<double>(step);
  objective.terms = {{"cross_entropy", objective.loss}};
  objective.grad_norm = 2;
  objective.learning_rate = 0.001;
  return report;
}

std::vector<std::string> tags_of(
    const std::map<std::string, std::vector<std::pair<int64_t, float>>>& curves) {
  std::vector<std::string> tags;
  tags.reserve(curves.size());
  for (const auto& [tag, curve] : curves) tags.push_back(tag);
  return tags;
}

TEST_F(TensorboardSink, in_a_folder_that_cannot_be_says_so_once_and_lets_the_run_go_on) {
  root_.file("tensorboard", "a file in the way");
  const auto sink = make();
  for (int64_t step = 1; step <= 300; ++step) sink->step(point(step));
  sink->flush();
  EXPECT_EQ(lines_told(), 1) << told();
  TANREN_EXPECT_CONTAINS(told(), "the run goes on without TensorBoard");
}

TEST_F(TensorboardSink, on_a_full_disk_says_so_once_ends_on_a_whole_record_and_catches_up) {
  const auto sink = make();
  for (int64_t step = 1; step <= 3; ++step) sink->step(point(step));
  sink->flush();
  const auto file = event_files(folder()).at(0);
  {
    const testing::FullDiskScope full(fs::file_size(file) + 450);  // a record is some 220 bytes
    for (int64_t step = 4; step <= 20; ++step) {
      sink->step(point(step));
      EXPECT_NO_THROW(sink->flush());
    }
    EXPECT_EQ(lines_told(), 1) << told();
    TANREN_EXPECT_CONTAINS(told(), "File too large; the run goes on");
    EXPECT_EQ(read_curves(folder())["train/loss"].size(), 5u);
  }
  sink->step(point(21));
  sink->flush();
  EXPECT_EQ(read_curves(folder())["train/loss"].size(), 21u);
  EXPECT_EQ(lines_told(), 1) << told();
}

TEST_F(TensorboardSink, names_curves_by_the_keys_of_the_log) {
  const auto sink = make();
  auto report = point(1);
  report.tokens = 4096;
  report.objectives[0].loss_scale = 65536;
  report.objectives[0].flush_share = 0.25;
  report.objectives[0].terms = {{"l1", 1.0}, {"perceptual_loss", 2.0}};
  sink->step(report);
  sink->evaluation({.step = 1, .samples = 10, .values = {{"loss", 3}, {"f1_macro", 0.5}}});
  sink->flush();
  const auto curves = read_curves(folder());
  EXPECT_EQ(
      tags_of(curves),
      (std::vector<std::string>{
          "evaluate/f1_macro", "evaluate/loss", "memory/memory_bytes", "speed/samples_per_second",
          "speed/seconds", "speed/tokens_per_second", "speed/wait_seconds", "train/flush_share",
          "train/grad_norm", "train/learning_rate", "train/loss", "train/loss_scale",
          "train/terms/l1", "train/terms/perceptual_loss"}));
  EXPECT_EQ(curves.at("speed/tokens_per_second").at(0).second, 8192);
  EXPECT_EQ(curves.at("train/learning_rate").at(0).second, 0.001f);
}

TEST_F(TensorboardSink, names_objectives_where_there_are_several) {
  const auto sink = make();
  auto report = point(1);
  report.objectives.push_back(report.objectives[0]);
  report.several = true;
  report.objectives[0].name = "generator";
  report.objectives[1].name = "discriminator";
  report.objectives[1].verdict = {Action::skip, Cause::nan_loss};
  sink->step(report);
  report.step = 2;
  report.objectives[1].verdict = {};
  sink->step(report);
  sink->flush();
  auto curves = read_curves(folder());
  EXPECT_EQ(curves.count("train/loss"), 0u);
  EXPECT_EQ(curves["train/generator/loss"].size(), 2u);
  EXPECT_EQ(curves["train/discriminator/grad_norm"].size(), 1u);
}

// With one skip its turns never again fall on a drawn step.
TEST_F(TensorboardSink, draws_an_objective_whose_turns_fall_between_the_points) {
  const auto sink = make({.every = 2});
  for (int64_t step = 1; step <= 6; ++step) {
    auto report = point(step);
    report.several = true;
    report.objectives[0].name = "critic";
    if (step % 2 == 1) {
      report.objectives.push_back(report.objectives[0]);
      report.objectives[1].name = "generator";
    }
    sink->step(report);
  }
  sink->flush();
  auto curves = read_curves(folder());
  EXPECT_EQ(curves["train/critic/loss"].size(), 3u);
  EXPECT_EQ(curves["train/generator/loss"].size(), 3u);
}

TEST_F(TensorboardSink, leaves_skipped_attempts_out_and_counts_them) {
  const auto sink = make();
  auto report = point(1);
  sink->step(report);
  report.attempt = 2;
  report.objectives[0].verdict = {Action::skip, Cause::overflow};
  report.objectives[0].loss = std::nan("");
  sink->step(report);
  report = point(2);
  report.attempt = 3;
  sink->step(report);
  sink->flush();
  auto curves = read_curves(folder());
  EXPECT_EQ(curves["train/loss"].size(), 2u);
  using Points = std::vector<std::pair<int64_t, float>>;
  EXPECT_EQ(curves["train/skipped_steps"], (Points{{2, 1.0f}}));
  EXPECT_EQ(curves["speed/samples_per_second"], (Points{{1, 64.0f}, {2, 64.0f}}));
}

TEST_F(TensorboardSink, draws_every_kth_step_with_mean_speeds_of_the_steps_between) {
  const auto sink = make({.every = 5});
  for (int64_t step = 1; step <= 12; ++step) {
    auto report = point(step);
    report.seconds = step <= 5 ? 1 : 0.25;
    sink->step(report);
  }
  sink->flush();
  auto curves = read_curves(folder());
  using Points = std::vector<std::pair<int64_t, float>>;
  EXPECT_EQ(curves["speed/samples_per_second"], (Points{{5, 32.0f}, {10, 128.0f}}));
  EXPECT_EQ(curves["speed/seconds"], (Points{{5, 1.0f}, {10, 0.25f}}));
  EXPECT_EQ(curves["train/loss"], (Points{{5, 0.2f}, {10, 0.1f}}));
}

TEST_F(TensorboardSink, stamps_points_with_the_time_at_which_they_were_told) {
  const auto seconds = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  const double start = seconds();
  const auto sink = make({.texts = {{"config", "[run]\nsteps = 3\n"}}});
  sink->step(point(1));
  const double end = seconds();
  sink->flush();
  const auto events = read_events(event_files(folder()).at(0));
  ASSERT_EQ(events.size(), 4u);
  for (const auto& event : events) {
    EXPECT_GE(event.wall_time, start);
    EXPECT_LE(event.wall_time, end);
  }
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[2].texts.at(0).first, "config");
  EXPECT_EQ(events[2].texts.at(0).second, "    [run]\n    steps = 3\n    ");
}

TEST_F(TensorboardSink, writes_an_evaluation_s_confusion_matrix_as_text) {
  const auto sink = make();
  EvaluationReport report{.step = 5, .samples = 2, .values = {{"loss", 1}}};
  report.classes.resize(2);
  report.confusion_matrix = {1, 0, 0, 1};
  sink->evaluation(report);
  sink->flush();
  const auto events = read_events(event_files(folder()).at(0));
  EXPECT_EQ(events.back().texts.at(0).first, "evaluate/confusion_matrix");
  EXPECT_EQ(events.back().step, 5);
}

// Issue 22: the points of an evaluation that was made again were in the files twice.
TEST_F(TensorboardSink, has_an_evaluation_once_where_it_is_made_again) {
  const EvaluationReport evaluated{.step = 2, .samples = 2, .values = {{"loss", 1}}};
  for (const bool repeats : {false, true}) {
    const auto sink = make({.step = repeats ? 2 : 0, .texts = {}, .repeats_evaluation = repeats});
    if (!repeats) {
      for (const int64_t step : {1, 2}) sink->step(point(step));
    }
    sink->evaluation(evaluated);
  }
  const auto curves = read_curves(folder());
  EXPECT_EQ(curves.at("evaluate/loss").size(), 1U);
  EXPECT_EQ(curves.at("train/loss").size(), 2U);
}

// Issue 22: a session that first made an owed evaluation seemed to begin after the step, so its
// file was removed.
TEST_F(TensorboardSink, keeps_an_owed_evaluation_of_the_step_before_a_start) {
  {
    const auto sink = make({});
    for (const int64_t step : {1, 2}) sink->step(point(step));
  }
  make({.step = 2})->evaluation({.step = 2, .samples = 2, .values = {{"loss", 1}}});
  make({.step = 2})->step(point(3));
  const auto curves = read_curves(folder());
  EXPECT_EQ(curves.at("evaluate/loss").size(), 1U);
  EXPECT_EQ(curves.at("train/loss").size(), 3U);
}

// huggingface/transformers#40560: rates after a resume counted what was trained before.
TEST_F(TensorboardSink, goes_on_in_a_new_file_without_lost_points_and_with_rates_of_its_own) {
  {
    const auto sink = make({.texts = {{"plan", "first"}}});
    for (int64_t step = 1; step <= 9; ++step) sink->step(point(step));
  }
  {
    const auto sink = make({.step = 6, .texts = {{"plan", "second"}}});
    for (int64_t step = 7; step <= 8; ++step) sink->step(point(step));
  }
  {
    const auto sink = make({.step = 6});  // the second session wrote no checkpoint
    auto report = point(7);
    report.seconds = 0.25;
    sink->step(report);
  }
  const auto files = event_files(folder());
  ASSERT_EQ(files.size(), 2u);
  auto curves = read_curves(folder());
  ASSERT_EQ(curves["train/loss"].size(), 7u);
  for (int64_t step = 1; step <= 7; ++step) EXPECT_EQ(curves["train/loss"][step - 1].first, step);
  EXPECT_EQ(curves["speed/samples_per_second"].back().second, 128.0f);
  EXPECT_EQ(read_events(files[1]).at(1).step, 7);  // readers discard step 7 and later
}

TEST_F(TensorboardSink, cuts_torn_records_and_leaves_other_programs_files_alone) {
  {
    const auto sink = make();
    for (int64_t step = 1; step <= 5; ++step) sink->step(point(step));
  }
  const auto file = event_files(folder()).at(0);
  const auto whole = fs::file_size(file);
  fs::resize_file(file, whole - 7);  // killed while it wrote
  const auto other = folder() / "events.out.tfevents.1.other";
  std::ofstream(other) << "not ours";
  cut_events(folder(), 5);
  EXPECT_EQ(read_events(file).size(), 6u);
  EXPECT_EQ(read_file(other), "not ours");
  cut_events(folder(), 2);
  EXPECT_EQ(read_events(file).back().step, 2);
  cut_events(folder(), 0);
  EXPECT_FALSE(fs::exists(file));
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(TensorboardSink, cuts_at_a_flipped_bit_behind_which_no_reader_can_go) {
  {
    const auto sink = make();
    for (int64_t step = 1; step <= 5; ++step) sink->step(point(step));
  }
  const auto file = event_files(folder()).at(0);
  std::string bytes = read_file(file);
  bytes[bytes.size() / 2] ^= 4;
  std::ofstream(file, std::ios::binary) << bytes;
  EXPECT_THROW(read_events(file), std::runtime_error);
  cut_events(folder(), 5);
  const auto events = read_events(file);
  EXPECT_GE(events.size(), 3u);
  EXPECT_LT(events.size(), 7u);
}

TEST_F(TensorboardSink, pictures_are_PNGs_under_their_tags) {
  ImageReport report{.step = 200, .pictures = {}};
  for (int64_t i = 0; i < 2; ++i) {
    std::vector<uint8_t> rgb(static_cast<size_t>(6 * (i + 1) * 3), static_cast<uint8_t>(40 * i));
    report.pictures.push_back({"eval/pictures/" + std::to_string(i), 6, i + 1, rgb});
  }
  const auto sink = make();
  sink->images(report);
  sink->images({.step = 300, .pictures = {}});
  sink->flush();
  int64_t seen = 0;
  for (const auto& file : event_files(folder())) {
    for (const auto& event : read_events(file)) {
      if (event.images.empty()) continue;
      ASSERT_EQ(event.images.size(), 2U);
      EXPECT_EQ(event.step, 200);
      for (size_t i = 0; i < 2; ++i) {
        const auto& [tag, image] = event.images[i];
        const auto& picture = report.pictures[i];
        EXPECT_EQ(tag, picture.tag);
        EXPECT_EQ(image.width, 6U);
        EXPECT_EQ(image.height, i + 1);
        EXPECT_EQ(image.png, png_of(picture.rgb, picture.width, picture.height));
        ++seen;
      }
    }
  }
  EXPECT_EQ(seen, 2);
}

}  // namespace
}  // namespace tanren
