#include "tanren/checkpoint/step_folders.h"

#include "tanren/base/testing.h"
#include "tanren/checkpoint/checkpoint.h"

#include <ATen/ATen.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <set>

extern "C" void restart_points();  // tests/support/crash_points.cpp

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

class StepFolders : public ::testing::Test {
 protected:
  fs::path save(int64_t step, int64_t mark, int64_t keep = 1) const {
    Snapshot snapshot;
    snapshot.model.tensors.set("weight", at::full({4}, static_cast<double>(mark)));
    snapshot.run.values["mark"] = mark;
    return write_checkpoint(folder_.path(), step, snapshot, keep, {step});
  }
  // The mark of the newest save, after all of it was verified.
  int64_t mark() const {
    const auto newest = latest_checkpoint(folder_.path());
    if (!newest) return -1;
    return value_of<int64_t>(read_checkpoint(*newest).run, "mark");
  }
  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      all.insert(entry.path().filename());
    }
    return all;
  }
  // Saves in a process that is killed before the `at`th call that changes the folder; false if
  // there are fewer such calls.
  bool is_killed(int64_t at, bool exchanges, int64_t step, int64_t mark) const {
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("POINTS_AT", std::to_string(at).c_str(), 1);
      if (!exchanges) ::setenv("POINTS_NO_EXCHANGE", "1", 1);
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

// Issue 21: between two renames neither save had a name that counts, and the next save deleted
// both.
TEST_F(StepFolders, a_kill_at_any_moment_of_saving_a_step_again_leaves_one_of_the_two_saves) {
  for (const bool exchanges : {true, false}) {
    for (int64_t at = 1;; ++at) {
      const std::string where =
          (exchanges ? "exchange, call " : "no exchange, call ") + std::to_string(at);
      fs::remove_all(folder_.path());
      save(5, 1);
      if (!is_killed(at, exchanges, 5, 2)) {
        EXPECT_GT(at, 30) << "nobody was killed";
        EXPECT_EQ(names(), (std::set<std::string>{"best", "step-5"})) << where;
        break;
      }
      const int64_t left = mark();
      ASSERT_TRUE(left == 1 || left == 2) << where << ": " << left;
      ASSERT_TRUE(checkpoint_of_step(folder_.path(), 5)) << where;
      ASSERT_TRUE(best_checkpoint(folder_.path())) << where;
      // The next start removes the leftovers, and the next save completes.
      remove_unfinished(folder_.path());
      EXPECT_EQ(mark(), left) << where;
      save(at % 2 == 0 ? 5 : 6, 3);
      EXPECT_EQ(mark(), 3) << where;
      EXPECT_EQ(names(), (std::set<std::string>{"best", at % 2 == 0 ? "step-5" : "step-6"}))
          << where;
    }
  }
}

TEST_F(StepFolders, two_kills_in_a_row_without_exchange_leave_one_of_the_saves) {
  for (int64_t first = 30;; first += 2) {
    fs::remove_all(folder_.path());
    save(5, 1);
    if (!is_killed(first, false, 5, 2)) break;
    for (int64_t second = 1; is_killed(second, false, 5, 3); second += 5) {
      const int64_t left = mark();
      ASSERT_TRUE(left >= 1 && left <= 3) << first << ", then " << second << ": " << left;
    }
    EXPECT_EQ(mark(), 3);
  }
}

TEST_F(StepFolders, the_older_save_counts_until_the_newer_has_its_place) {
  save(5, 1);
  fs::rename(folder_.path() / "step-5", folder_.path() / ".tmp-step-5-before");
  EXPECT_EQ(latest_checkpoint(folder_.path())->filename(), ".tmp-step-5-before");
  EXPECT_EQ(best_checkpoint(folder_.path())->filename(), ".tmp-step-5-before");
  EXPECT_EQ(mark(), 1);
  remove_unfinished(folder_.path());
  EXPECT_EQ(mark(), 1);
  save(7, 2, /*keep=*/2);
  EXPECT_EQ(names(), (std::set<std::string>{"best", ".tmp-step-5-before", "step-7"}));
  save(5, 3, /*keep=*/2);
  EXPECT_EQ(checkpoint_of_step(folder_.path(), 5)->filename(), "step-5");
  EXPECT_EQ(names(), (std::set<std::string>{"best", "step-5", "step-7"}));
}

TEST_F(StepFolders, what_is_not_ours_stays) {
  for (const char* name : {".tmp-mine", ".tmp-step-x-a1b2c3d4e", "step-12x", ".tmp-steps"}) {
    fs::create_directory(folder_.path() / name);
  }
  for (const char* name : {".tmp-step-5-a1b2c3d4", ".tmp-step-5", ".tmp-best", ".tmp-best-a1b2c3d4",
                           ".tmp-step-5-before"}) {
    fs::create_directory(folder_.path() / name);
  }
  remove_unfinished(folder_.path());
  EXPECT_EQ(names(), (std::set<std::string>{".tmp-mine", ".tmp-step-x-a1b2c3d4e", ".tmp-steps",
                                            "step-12x"}));
}

}  // namespace
}  // namespace tanren
