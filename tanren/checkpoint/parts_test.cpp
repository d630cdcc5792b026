// Checkpoints of ranks that hold a part of the model each.
#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/checkpoint/manifest.h"
#include "tanren/checkpoint/step_folders.h"
#include "tanren/checkpoint/weights_file.h"
#include "tanren/comm/on_ranks_test_util.h"

#include <ATen/ATen.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

extern "C" void restart_points();  // tests/support/crash_points.cpp

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::on_ranks;
using testing::TemporaryFolder;

class CheckpointParts : public ::testing::Test {
 protected:
  static constexpr int kRanks = 2;

  // The part of rank `rank`. `mark` distinguishes saves. The model has the second rank's weight
  // first.
  static Snapshot held_by(int rank, int64_t mark) {
    const std::string weight = rank == 0 ? "one.weight" : "two.weight";
    const auto value = static_cast<double>(10 * mark + rank);
    Snapshot snapshot;
    snapshot.model.tensors.set(weight, at::full({4, 3}, value));
    snapshot.average.tensors.set(weight, at::full({4, 3}, value + 0.5));
    snapshot.average.values["loss.num_updates"] = mark;
    snapshot.optimizer.tensors.set("loss." + weight + ".exp_avg", at::full({4, 3}, value + 0.25));
    snapshot.optimizer.values["loss." + weight + ".started"] = true;
    snapshot.run.values["mark"] = mark;
    snapshot.parts = {.model = {.part = rank, .parts = kRanks},
                      .optimizer = {.part = rank, .parts = kRanks},
                      .names = {"two.weight", "one.weight", "not_averaged"}};
    return snapshot;
  }
  void save(int64_t step, int64_t mark,
            const std::function<void(int, Snapshot&)>& change = {}) const {
    on_ranks(kRanks, [&](Communicator& comm) {
      Snapshot snapshot = held_by(comm.rank(), mark);
      if (change) change(comm.rank(), snapshot);
      write_shared_checkpoint(folder_.path(), step, snapshot, /*keep=*/2, {step}, comm);
    });
  }
  fs::path newest() const { return *latest_checkpoint(folder_.path()); }
  int64_t mark() const { return value_of<int64_t>(read_checkpoint(newest()).run, "mark"); }
  static std::vector<std::string> names_of_all(const TensorMap& tensors) {
    std::vector<std::string> names;
    for (const auto& item : tensors) names.push_back(item.first);
    return names;
  }
  std::set<std::string> saves() const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      all.insert(entry.path().filename());
    }
    return all;
  }
  // Damages a good step folder with `ruin` and returns the one-line error of reading it.
  std::string refusal_after(const std::function<void(const fs::path&)>& ruin) const {
    fs::remove_all(folder_.path());
    save(1, 1);
    ruin(newest());
    std::string line = testing::error_of<CheckpointError>([&] { read_checkpoint(newest()); });
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    TANREN_EXPECT_CONTAINS(line, "step-1");
    return line;
  }
  // Saves in a process that is killed before the `at`th call that changes the folder; false if
  // there are fewer such calls.
  bool is_killed(int64_t at, int64_t step, int64_t mark) const {
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("POINTS_AT", std::to_string(at).c_str(), 1);
      restart_points();
      try {
        save(step, mark);
        ::_exit(0);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        ::_exit(1);
      }
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
  }

  TemporaryFolder folder_;
};

TEST_F(CheckpointParts, are_read_as_the_whole_in_the_order_of_the_model) {
  save(1, 3);
  for (const int64_t rank : {0, 1, 2}) {
    const Snapshot read = read_checkpoint(newest(), rank, /*ranks=*/3);
    const std::vector<std::string> order = {"two.weight", "one.weight"};
    EXPECT_EQ(names_of_all(read.model.tensors), order);
    EXPECT_EQ(names_of_all(read.average.tensors), order);
    EXPECT_TRUE(at::equal(read.model.tensors.at("one.weight"), at::full({4, 3}, 30.0)));
    EXPECT_TRUE(at::equal(read.model.tensors.at("two.weight"), at::full({4, 3}, 31.0)));
    EXPECT_TRUE(at::equal(read.average.tensors.at("two.weight"), at::full({4, 3}, 31.5)));
    EXPECT_EQ(value_of<int64_t>(read.average, "loss.num_updates"), 3);
    EXPECT_TRUE(read.slices.empty());
    EXPECT_EQ(read.optimizer.tensors.size(), 2U);
    EXPECT_TRUE(
        at::equal(read.optimizer.tensors.at("loss.two.weight.exp_avg"), at::full({4, 3}, 31.25)));
    EXPECT_TRUE(value_of<bool>(read.optimizer, "loss.one.weight.started"));
    EXPECT_TRUE(value_of<bool>(read.optimizer, "loss.two.weight.started"));
  }
  EXPECT_EQ(best_checkpoint(folder_.path()), newest());
}

TEST_F(CheckpointParts, of_a_step_folder_are_weights_by_their_index) {
  save(1, 3);
  const auto weights = read_weights(newest());
  EXPECT_EQ(weights.kind, "2 files by their index");
  EXPECT_EQ(names_of_all(weights.content.tensors),
            (std::vector<std::string>{"two.weight", "one.weight"}));
  const auto averages = read_weights(newest() / "average.safetensors.index.json");
  EXPECT_EQ(averages.content.tensors.at("one.weight")[0][0].item<float>(), 30.5);
}

TEST_F(CheckpointParts, with_a_missing_part_are_refused) {
  for (const std::string part : {"00000", "00001"}) {
    for (const std::string kind : {"model", "average", "optimizer"}) {
      const std::string file = kind + "-" + part + "-of-00002.safetensors";
      TANREN_EXPECT_CONTAINS(refusal_after([&](const fs::path& step) { fs::remove(step / file); }),
                             file + " is missing");
    }
  }
  TANREN_EXPECT_CONTAINS(refusal_after([](const fs::path& step) {
                           fs::remove(step / "model.safetensors.index.json");
                         }),
                         "model.safetensors.index.json is missing");
}

TEST_F(CheckpointParts, of_another_save_are_refused) {
  for (const std::string kind : {"model", "average", "optimizer"}) {
    const std::string file = kind + "-00001-of-00002.safetensors";
    const auto ruin = [&](const fs::path& step) {
      save(2, 2);
      fs::copy_file(newest() / file, step / file, fs::copy_options::overwrite_existing);
      fs::remove_all(newest());
    };
    TANREN_EXPECT_CONTAINS(refusal_after(ruin), file + " has changed");
    if (kind != "model") continue;
    TANREN_EXPECT_CONTAINS(testing::error_of<CheckpointError>([&] { read_weights(newest()); }),
                           file + " has changed");
  }
}

// They are refused even if the manifest fits them.
TEST_F(CheckpointParts, that_hold_a_tensor_twice_are_refused) {
  for (const std::string kind : {"model", "average", "optimizer"}) {
    const std::string line = refusal_after([&](const fs::path& step) {
      fs::copy_file(step / (kind + "-00000-of-00002.safetensors"),
                    step / (kind + "-00001-of-00002.safetensors"),
                    fs::copy_options::overwrite_existing);
      fs::remove(step / "manifest.json");
      fs::remove(step / kMarker);
      write_manifest(step);
    });
    TANREN_EXPECT_CONTAINS(line, "one.weight");
    TANREN_EXPECT_CONTAINS(line, kind == "optimizer" ? "which another part has, too"
                                                     : "is in " + kind + "-00001-of-00002");
  }
}

TEST_F(CheckpointParts, are_not_there_if_two_ranks_write_one_tensor) {
  const auto claim = [](int rank, Snapshot& snapshot) {
    if (rank == 1) snapshot.model.tensors.set("one.weight", at::zeros({1}));
  };
  TANREN_EXPECT_CONTAINS(testing::error_of<RunError>([&] { save(1, 1, claim); }),
                         "one.weight is in model-00000-of-00002");
  EXPECT_TRUE(saves().empty());
}

// The rank's part of the model is written, but its optimizer state cannot be written.
TEST_F(CheckpointParts, are_not_there_if_a_rank_fails_between_two_files) {
  save(1, 1);
  const auto fail = [](int rank, Snapshot& snapshot) {
    if (rank == 1) snapshot.optimizer.tensors.set("x", at::zeros({1}, at::kComplexFloat));
  };
  TANREN_EXPECT_CONTAINS(testing::error_of<RunError>([&] { save(2, 2, fail); }),
                         "rank 1 cannot write its part of");
  EXPECT_EQ(saves(), (std::set<std::string>{"best", "step-1"}));
  EXPECT_EQ(mark(), 1);
}

TEST_F(CheckpointParts, are_complete_or_invisible_after_a_kill_at_any_moment) {
  for (int64_t at = 1;; ++at) {
    SCOPED_TRACE(at);
    fs::remove_all(folder_.path());
    save(1, 1);
    if (!is_killed(at, 2, 2)) {
      EXPECT_GT(at, 30) << "nobody was killed";
      break;
    }
    const auto left = mark();  // verifies every file
    ASSERT_EQ(newest().filename(), left == 1 ? "step-1" : "step-2");
    save(3, 3);
    ASSERT_EQ(mark(), 3);
    for (const std::string& name : saves()) ASSERT_FALSE(name.starts_with(".tmp")) << name;
  }
}

TEST_F(CheckpointParts, of_an_impossible_number_are_none) {
  save(1, 1);
  for (const char* name :
       {"model-00000-of-99999999.safetensors", "model-00002-of-00002.safetensors",
        "model-x-of-00002.safetensors", "model--0001-of-00002.safetensors"}) {
    write_file(newest() / name, "x");
  }
  const fs::path step = newest();
  fs::remove(step / "manifest.json");
  fs::remove(step / kMarker);
  write_manifest(step);
  EXPECT_EQ(mark(), 1);
}

TEST_F(CheckpointParts, that_the_manifest_does_not_list_are_none) {
  save(1, 1);
  write_file(newest() / "model-00000-of-00003.safetensors", "x");
  EXPECT_EQ(mark(), 1);
}

}  // namespace
}  // namespace tanren
