#include "tanren/checkpoint/checkpoint.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/manifest.h"

#include <set>

#include <ATen/ATen.h>

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

// A snapshot that differs from others only by `mark`.
Snapshot snapshot_of(int64_t mark, int64_t size = 4) {
  Snapshot snapshot;
  snapshot.model.tensors.set("weight", at::full({size, 3}, static_cast<double>(mark)));
  snapshot.model.tensors.set("running_mean", at::arange(size, at::kDouble));
  snapshot.optimizer.tensors.set("weight.exp_avg", at::rand({size, 3}));
  snapshot.optimizer.values["kind"] = std::string("adamw");
  snapshot.run.tensors.set("generator", at::arange(16, at::kByte));
  snapshot.run.values["step"] = mark;
  snapshot.run.values["scale"] = 65536.0;
  snapshot.run.values["training"] = true;
  snapshot.config_toml = "[run]\nname = \"x\"\n";
  snapshot.plan_text = "global_batch  32\n";
  return snapshot;
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

void expect_equal(const State& a, const State& b) {
  EXPECT_EQ(a.values, b.values);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  auto other = b.tensors.begin();
  for (const auto& [name, tensor] : a.tensors) {
    EXPECT_EQ(name, other->first);
    EXPECT_EQ(tensor.scalar_type(), other->second.scalar_type());
    EXPECT_TRUE(at::equal(tensor, other->second)) << name;
    ++other;
  }
}

int64_t mark_of(const fs::path& step_folder) {
  return value_of<int64_t>(read_checkpoint(step_folder).run, "step");
}

// Damages a good step folder with `ruin` and returns the one-line error of reading it.
std::string error_after(const std::function<void(const fs::path&)>& ruin) {
  const TemporaryFolder folder;
  const auto step = write_checkpoint(folder.path(), 7, snapshot_of(7), 2);
  ruin(step);
  auto error = testing::error_of<CheckpointError>([&] { read_checkpoint(step); });
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  TANREN_EXPECT_CONTAINS(error, "step-7");
  return error;
}

const std::vector<std::string> kFiles = {
    "model.safetensors", "optimizer.safetensors", "random.safetensors", "state.json", "config.toml",
    "plan.txt",          "manifest.json"};

TEST(Checkpoint, a_folder_without_the_marker_is_none) {
  TANREN_EXPECT_CONTAINS(error_after([](const fs::path& step) { fs::remove(step / "COMPLETE"); }),
                         "no complete checkpoint");
  TANREN_EXPECT_CONTAINS(error_after([](const fs::path& step) { fs::remove_all(step); }),
                         "no complete checkpoint");
}

TEST(Checkpoint, a_missing_file_is_named) {
  for (const auto& file : kFiles) {
    const auto error = error_after([&](const fs::path& step) { fs::remove(step / file); });
    TANREN_EXPECT_CONTAINS(error, file + " is missing");
  }
}

TEST(Checkpoint, a_truncated_or_empty_file_is_named_with_both_sizes) {
  for (const auto& file : kFiles) {
    for (const bool empty : {true, false}) {
      uint64_t size = 0;
      const auto error = error_after([&](const fs::path& step) {
        size = fs::file_size(step / file);
        fs::resize_file(step / file, empty ? 0 : size - 1);
      });
      TANREN_EXPECT_CONTAINS(error, file);
      if (file == "manifest.json") continue;
      TANREN_EXPECT_CONTAINS(error, "has " + std::to_string(empty ? 0 : size - 1) + " bytes");
      TANREN_EXPECT_CONTAINS(error, "the manifest says " + std::to_string(size));
    }
  }
}

// issue 21
TEST(Checkpoint, a_file_that_cannot_be_read_to_its_end_is_not_called_cut_off) {
  const TemporaryFolder folder;
  const auto step = write_checkpoint(folder.path(), 7, snapshot_of(7), 2);
  // Its first page is never mapped: reading it is an input/output error.
  const auto unreadable = [&](const char* name) {
    fs::remove(step / name);
    fs::create_symlink("/proc/self/mem", step / name);
  };
  unreadable("random.safetensors");
  auto error = testing::error_of<InputError>([&] { read_checkpoint(step); });
  TANREN_EXPECT_CONTAINS(error, "random.safetensors to its end");
  // write_manifest must not list only the part that could be read.
  fs::remove(step / "manifest.json");
  error = testing::error_of<InputError>([&] { write_manifest(step); });
  TANREN_EXPECT_CONTAINS(error, "random.safetensors to its end");
  EXPECT_FALSE(fs::exists(step / "manifest.json"));
}

TEST(Checkpoint, one_flipped_bit_anywhere_is_found) {
  for (const auto& file : kFiles) {
    for (const double place : {0.0, 0.5, 1.0}) {
      const auto error = error_after([&](const fs::path& step) {
        auto bytes = read_file(step / file);
        bytes[static_cast<size_t>(place * static_cast<double>(bytes.size() - 1))] ^= 1;
        write_file(step / file, bytes);
      });
      TANREN_EXPECT_CONTAINS(error, file + " has changed");
    }
  }
}

TEST(Checkpoint, garbage_in_place_of_a_file_or_the_marker_is_found) {
  for (const auto& file : {"COMPLETE", "manifest.json", "model.safetensors", "state.json"}) {
    error_after([&](const fs::path& step) { write_file(step / file, "\xff\xfe garbage {"); });
  }
}

TEST(Checkpoint, a_full_disk_leaves_nothing_visible_and_the_last_good_one_intact) {
  const TemporaryFolder folder;
  const auto good = write_checkpoint(folder.path(), 5, snapshot_of(5), 1);
  const auto large = snapshot_of(6, 100000);
  std::string error;
  {
    const testing::FullDiskScope full(64 * 1024);
    error = testing::error_of<RunError>([&] { write_checkpoint(folder.path(), 6, large, 1); });
    testing::error_of<RunError>([&] { write_checkpoint(folder.path(), 5, large, 1); });
  }
  TANREN_EXPECT_CONTAINS(error, "free space");
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"step-5"});
  EXPECT_EQ(latest_checkpoint(folder.path()), good);
  EXPECT_EQ(mark_of(good), 5);
}

TEST(Checkpoint, a_folder_that_cannot_be_made_is_a_run_error) {
  const TemporaryFolder folder;
  const auto blocked = folder.file("checkpoints", "a file, not a folder");
  for (const auto& path : {fs::path(blocked), fs::path(blocked) / "deeper"}) {
    const auto error =
        testing::error_of<RunError>([&] { write_checkpoint(path, 5, snapshot_of(5), 1); });
    TANREN_EXPECT_CONTAINS(error, "[checkpoint] cannot write");
    EXPECT_EQ(latest_checkpoint(path), std::nullopt);
  }
  EXPECT_EQ(read_file(blocked), "a file, not a folder");
}

TEST(Checkpoint, a_dtype_that_cannot_be_saved_leaves_nothing_behind) {
  const TemporaryFolder folder;
  auto snapshot = snapshot_of(5);
  snapshot.model.tensors.set("z", at::zeros({2}, at::kComplexFloat));
  EXPECT_THROW(write_checkpoint(folder.path(), 5, snapshot, 1), Error);
  snapshot = snapshot_of(5);
  snapshot.run.values["text"] = std::string("\xff not UTF-8");
  EXPECT_THROW(write_checkpoint(folder.path(), 5, snapshot, 1), RunError);
  EXPECT_EQ(folder.num_entries(), 0);
}

TEST(Checkpoint, everything_comes_back) {
  const TemporaryFolder folder;
  const auto written = snapshot_of(12);
  const auto step = write_checkpoint(folder.path() / "made" / "here", 12, written, 2);
  EXPECT_EQ(step, folder.path() / "made" / "here" / "step-12");
  const auto read = read_checkpoint(step);
  expect_equal(read.model, written.model);
  expect_equal(read.optimizer, written.optimizer);
  expect_equal(read.run, written.run);
  EXPECT_EQ(read.config_toml, written.config_toml);
  EXPECT_EQ(read.plan_text, written.plan_text);
}

TEST(Checkpoint, a_state_without_tensors_comes_back) {
  const TemporaryFolder folder;
  const auto read = read_checkpoint(write_checkpoint(folder.path(), 0, {}, 1));
  EXPECT_TRUE(read.model.tensors.empty());
  EXPECT_TRUE(read.run.values.empty());
  EXPECT_EQ(read.config_toml, "");
}

TEST(Checkpoint, the_latest_is_the_last_complete_one_by_number) {
  const TemporaryFolder folder;
  EXPECT_EQ(latest_checkpoint(folder.path()), std::nullopt);
  EXPECT_EQ(latest_checkpoint(folder.path() / "absent"), std::nullopt);
  for (const int64_t step : {9, 10, 100})
    write_checkpoint(folder.path(), step, snapshot_of(step), 9);
  EXPECT_EQ(latest_checkpoint(folder.path()), folder.path() / "step-100");
  fs::remove(folder.path() / "step-100" / "COMPLETE");  // HF#41723: half-written does not count
  fs::create_directory(folder.path() / "step-999");
  fs::create_directory(folder.path() / "step-12x");
  EXPECT_EQ(latest_checkpoint(folder.path()), folder.path() / "step-10");
}

TEST(Checkpoint, keeps_the_last_k_and_always_the_newest) {
  const TemporaryFolder folder;
  for (int64_t step = 1; step <= 5; ++step)
    write_checkpoint(folder.path(), step, snapshot_of(step), 2);
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"step-4", "step-5"}));
  write_checkpoint(folder.path(), 6, snapshot_of(6), 0);
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"step-6"});
}

TEST(Checkpoint, an_incomplete_one_does_not_push_a_complete_one_out) {
  const TemporaryFolder folder;
  write_checkpoint(folder.path(), 1, snapshot_of(1), 2);
  fs::create_directory(folder.path() / "step-3");
  write_checkpoint(folder.path(), 2, snapshot_of(2), 2);
  EXPECT_EQ(mark_of(folder.path() / "step-1"), 1);
  EXPECT_EQ(mark_of(folder.path() / "step-2"), 2);
}

TEST(Checkpoint, what_a_dead_writer_left_is_invisible_and_goes_with_the_next_write) {
  const TemporaryFolder folder;
  write_checkpoint(folder.path(), 1, snapshot_of(1), 3);
  fs::copy(folder.path() / "step-1", folder.path() / ".tmp-step-2");
  EXPECT_EQ(latest_checkpoint(folder.path()), folder.path() / "step-1");
  write_checkpoint(folder.path(), 3, snapshot_of(3), 3);
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"step-1", "step-3"}));
}

TEST(Checkpoint, writing_a_step_again_replaces_it_complete_or_not) {
  const TemporaryFolder folder;
  write_checkpoint(folder.path(), 1, snapshot_of(1), 1);
  write_checkpoint(folder.path(), 1, snapshot_of(2), 1);
  EXPECT_EQ(mark_of(folder.path() / "step-1"), 2);
  fs::remove(folder.path() / "step-1" / "COMPLETE");
  write_checkpoint(folder.path(), 1, snapshot_of(3), 1);
  EXPECT_EQ(mark_of(folder.path() / "step-1"), 3);
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"step-1"});
}

TEST(Checkpoint, keeps_the_best_beside_the_newest_and_links_the_first_of_them) {
  const TemporaryFolder folder;
  write_checkpoint(folder.path(), 1, snapshot_of(1), 2, {1});
  EXPECT_EQ(fs::read_symlink(folder.path() / "best"), "step-1");
  write_checkpoint(folder.path(), 2, snapshot_of(2), 2, {2, 1});
  for (int64_t step = 3; step <= 6; ++step) {
    write_checkpoint(folder.path(), step, snapshot_of(step), 2, {2, 1});
  }
  EXPECT_EQ(names_in(folder.path()),
            (std::set<std::string>{"best", "step-1", "step-2", "step-5", "step-6"}));
  EXPECT_EQ(best_checkpoint(folder.path())->filename(), "step-2");
  EXPECT_EQ(latest_checkpoint(folder.path())->filename(), "step-6");
  write_checkpoint(folder.path(), 7, snapshot_of(7), 1, {7, 2});
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"best", "step-2", "step-7"}));
  fs::remove_all(folder.path() / "step-2");
  write_checkpoint(folder.path(), 8, snapshot_of(8), 1, {2, 7});
  EXPECT_EQ(best_checkpoint(folder.path())->filename(), "step-7") << "the best that is there";
  write_checkpoint(folder.path(), 9, snapshot_of(9), 1);
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"step-9"}));
  EXPECT_FALSE(best_checkpoint(folder.path()));
  EXPECT_FALSE(checkpoint_of_step(folder.path(), 7));
}

TEST(Checkpoint, holds_averages_where_there_are_some_and_names_them_when_they_are_damaged) {
  const TemporaryFolder folder;
  Snapshot written = snapshot_of(1);
  EXPECT_TRUE(
      read_checkpoint(write_checkpoint(folder.path(), 1, written, 1)).average.values.empty());
  written.average.tensors.set("w", at::full({3}, 2.5));
  written.average.values["train.loss.num_updates"] = int64_t{7};
  const auto step = write_checkpoint(folder.path(), 2, written, 1);
  const auto read = read_checkpoint(step);
  EXPECT_TRUE(at::equal(read.average.tensors.at("w"), written.average.tensors.at("w")));
  EXPECT_EQ(read.average.values, written.average.values);
  fs::remove(step / "average.safetensors");
  const auto error = testing::error_of<CheckpointError>([&] { read_checkpoint(step); });
  EXPECT_NE(error.find("average.safetensors"), std::string::npos) << error;
}

}  // namespace
}  // namespace tanren
