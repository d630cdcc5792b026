// One rank of two stages and two replicas dies at a chosen moment. The other processes end within
// 10 s, each with one line that names the lost rank. The run then resumes as one stage, as three
// stages and as threads, with the log of an undisturbed run.
#include "tanren/base/seconds.h"
#include "tanren/base/testing.h"
#include "tests/support/child.h"
#include "tests/support/forked.h"
#include "tests/support/run_log.h"
#include "tests/support/shell.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

const std::string kMortal = TANREN_TEST_PROGRAM;

// Each replica has seven samples of a batch, in four microbatches. An evaluation takes three
// batches of each replica.
constexpr const char* kConfig = R"([run]
seed = 7
threads = 1
steps = 12
[model]
kind = "mortal"
hidden = [16, 16]
dropout = 0.2
[data]
workers = 0
[data.train]
kind = "synthetic"
samples = 56
fields = ["inputs: float[1,8,8] in [-1, 1]", "labels: int[] in [0, 4]"]
[data.eval]
kind = "synthetic"
samples = 31
fields = ["inputs: float[1,8,8] in [-1, 1]", "labels: int[] in [0, 4]"]
[batch]
global_batch = 14
microbatch = 2
[precision]
mode = "fp64"
[optimizer]
kind = "adamw"
learning_rate = 0.003
[clip]
norm = 1.0
[evaluate]
every = 4
batch = 6
metrics = ["accuracy"]
[checkpoint]
every = 4
[metrics]
tensorboard = false
)";

struct Moment {
  const char* name;
  int rank;                              // of the process that dies
  std::vector<std::string> environment;  // of that process
  int64_t saved;                         // the step of the newest checkpoint then
};
void PrintTo(const Moment& moment, std::ostream* out) { *out << moment.name; }

class LostStage : public ::testing::TestWithParam<Moment> {
 protected:
  fs::path at(const std::string& name) const { return folder_.path() / name; }

  // The four ranks of `cut`, as torchrun would start them.
  std::vector<Child> start(const Moment& moment) const {
    std::vector<Child> ranks;
    for (int rank = 0; rank < 4; ++rank) {
      const std::string number = std::to_string(rank);
      std::vector<std::string> environment = {"RANK=" + number, "WORLD_SIZE=4",
                                              "LOCAL_RANK=" + number, "LOCAL_WORLD_SIZE=4"};
      if (rank == moment.rank) {
        environment.insert(environment.end(), moment.environment.begin(), moment.environment.end());
      }
      ranks.push_back(forked_child({kMortal, "run", at("run.toml"), "--quiet", "--out", at("cut"),
                                    "--set", "parallel.pipeline=2", "--set",
                                    "parallel.rendezvous=file://" + at("rendezvous").string()},
                                   environment));
    }
    return ranks;
  }

  // Continues a copy of `cut` by `command`, and expects the log of `one`.
  void expect_goes_on(const std::string& command, const std::string& name,
                      const std::string& sets) const {
    fs::copy(at("cut"), at(name), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    const auto result =
        shell(command + " run run.toml --quiet --out " + name + sets, folder_.path());
    ASSERT_EQ(result.code, 0) << name << "\n" << result.output;
    SCOPED_TRACE(name);
    expect_same_log(at("one"), at(name));
  }

  TemporaryFolder folder_;
};

TEST_P(LostStage, is_named_by_the_others_and_the_run_goes_on_in_any_layout) {
  const Moment& moment = GetParam();
#ifdef __SANITIZE_ADDRESS__
  if (moment.environment.front().starts_with("LD_PRELOAD")) {
    GTEST_SKIP() << "nothing can be preloaded before the address sanitizer";
  }
#endif
  folder_.file("run.toml", kConfig);
  const std::string mortal = forked(kMortal, kMortal);
  const auto alone = shell(mortal + " run run.toml --quiet --out one", folder_.path());
  ASSERT_EQ(alone.code, 0) << alone.output;
  {
    auto ranks = start(moment);
    Child& lost = ranks[static_cast<size_t>(moment.rank)];
    ASSERT_EQ(lost.ended(seconds(60)), 128 + SIGKILL) << lost.text();
    const auto start = std::chrono::steady_clock::now();
    for (Child& rank : ranks) {
      if (&rank == &lost) continue;
      EXPECT_EQ(rank.ended(seconds(10)), 1) << rank.text();
      const std::string text = rank.text();
      EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
      TANREN_EXPECT_CONTAINS(text, "[comm] rank " + std::to_string(moment.rank) + " (");
      TANREN_EXPECT_CONTAINS(text,
                             ", pid " + std::to_string(lost.pid()) + ") is gone without a word (");
    }
    EXPECT_LT(seconds_since(start), 10);
    std::printf("died %s: the others ended in %.2f s\n", moment.name, seconds_since(start));
  }
  EXPECT_EQ(last_checkpoint(at("cut")), moment.saved);
  if (HasFailure()) return;
  expect_goes_on(mortal, "whole", "");
  expect_goes_on(TANREN_BINARY " launch -n 3 -- " + kMortal, "three", " --set parallel.pipeline=3");
  expect_goes_on(mortal, "threads",
                 " --set parallel.pipeline=2 --set parallel.replicas=2"
                 " --set parallel.ranks=threads");
}

// Ranks 0 and 1 have the first stage. The rank dies in update 7, or in the checkpoint or the
// evaluation of step 8.
INSTANTIATE_TEST_SUITE_P(
    Moments, LostStage,
    ::testing::Values(
        Moment{"in_the_warm_up", 0, {"DIE_POINT=forward", "DIE_AT=25"}, 4},
        Moment{"in_the_steady_state", 3, {"DIE_POINT=backward", "DIE_AT=26"}, 4},
        Moment{"in_an_update", 1, {"DIE_POINT=update", "DIE_AT=7"}, 4},
        // Call 11 is the third file change of the rank's second checkpoint.
        Moment{"in_a_checkpoint", 2, {"LD_PRELOAD=" TANREN_CRASH_POINTS, "POINTS_AT=11"}, 4},
        // The rehearsal counts as the first batch.
        Moment{"in_an_evaluation", 3, {"DIE_POINT=evaluation", "DIE_AT=6"}, 8}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tanren::testing
