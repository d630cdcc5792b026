// The other run goes on while a fork reads its checkpoint: it replaces the save of a step by a
// newer one of that step. A fork takes one of them whole, and all ranks take the same.
#include "tanren/run/fork.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/comm/on_ranks_test_util.h"
#include "tanren/config/write_config.h"
#include "tanren/run/origin.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>

#include <fcntl.h>

#include <atomic>
#include <cstdio>
#include <thread>

namespace tanren {
namespace {

namespace fs = std::filesystem;

class ForkSourceOf : public ::testing::Test {
 protected:
  // Writes two saves of step 5, of which one is visible in the run folder a.
  explicit ForkSourceOf(int64_t elements = 4) {
    save("a", "first", elements);
    save("other", "second", 4);
    config_.run.fork_from = (folder_.path() / "a").string();
    folder_.file("a/config.toml", to_toml(RunConfig()));
  }
  // Every part of the save has `mark` in it.
  void save(const std::string& run, const std::string& mark, int64_t elements) const {
    RunConfig config;
    config.run.name = mark;
    Snapshot snapshot;
    snapshot.model.tensors.set("weight", at::zeros({elements}));
    snapshot.optimizer.tensors.set("weight.exp_avg", at::zeros({4}));
    snapshot.optimizer.values["kind"] = mark;
    snapshot.run.tensors.set("generator", at::zeros({4}));
    snapshot.run.values["mark"] = mark;
    snapshot.config_toml = to_toml(config);
    snapshot.plan_text = mark;
    snapshot.origin = to_json(Origin{.data = {{"mark", mark}}, .changes = {}});
    write_checkpoint(folder_.path() / run / "checkpoints", 5, snapshot, 3);
  }
  // As put_in_place does it.
  void exchange() const {
    const fs::path one = folder_.path() / "a/checkpoints/step-5";
    const fs::path other = folder_.path() / "other/checkpoints/step-5";
    ASSERT_EQ(::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE), 0);
  }
  // The mark of the save that was opened, which is the same in all its parts.
  std::string mark_in(const std::optional<ForkSource>& source) const {
    if (!source) return "none";
    const std::string mark = value_of<std::string>(source->snapshot->run, "mark");
    EXPECT_EQ(source->config.run.name, mark);
    EXPECT_EQ(source->data, (Facts{{"mark", mark}}));
    EXPECT_EQ(source->snapshot->plan_text, mark);
    EXPECT_EQ(value_of<std::string>(source->snapshot->optimizer, "kind"), mark);
    return mark;
  }

  testing::TemporaryFolder folder_;
  RunConfig config_;
};

// Whether this process has the model of a save of step 5 open.
bool reads_model() {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd", none)) {
    if (fs::read_symlink(entry.path(), none).string().ends_with("step-5/model.safetensors")) {
      return true;
    }
  }
  return false;
}

class ForkSourceOfLarge : public ForkSourceOf {
 protected:
  ForkSourceOfLarge() : ForkSourceOf(int64_t{1} << 25) {}  // it takes a while to read
};

TEST_F(ForkSourceOfLarge, a_save_that_is_replaced_while_it_is_read_is_the_newer_one) {
  bool was_replaced = false;
  for (int tries = 0; tries < 20 && !was_replaced; ++tries) {
    std::atomic<bool> is_done{false};
    bool was_exchanged = false;
    std::thread other_run([&] {
      while (!is_done && !reads_model()) std::this_thread::yield();
      if (is_done) return;
      exchange();
      was_exchanged = true;
    });
    std::string mark;
    EXPECT_NO_THROW(mark = mark_in(choose_fork(config_, false)));
    is_done = true;
    other_run.join();
    was_replaced = mark == "second";  // else the exchange came too late
    EXPECT_TRUE(was_replaced || mark == "first") << mark;
    if (was_exchanged) exchange();
  }
  EXPECT_TRUE(was_replaced);
}

TEST_F(ForkSourceOf, ranks_is_one_save_where_it_is_replaced_between_two_ranks) {
  int calls = 0;  // on rank 0 alone
  testing::on_ranks(2, [&](Communicator& comm) {
    const auto source = agreed_fork(comm, [&] {
      auto chosen = choose_fork(config_, false);
      if (++calls == 1) exchange();
      return chosen;
    });
    EXPECT_EQ(mark_in(source), "second") << "rank " << comm.rank();
  });
  EXPECT_EQ(calls, 2);
}

TEST_F(ForkSourceOf, ranks_is_refused_where_it_is_replaced_again_and_again_or_cannot_be_seen) {
  const auto refusal = [&](const std::function<void()>& after) {
    std::vector<std::string> told(2);
    testing::on_ranks(2, [&](Communicator& comm) {
      told[static_cast<size_t>(comm.rank())] = testing::error_of<CheckpointError>([&] {
        agreed_fork(comm, [&] {
          auto chosen = choose_fork(config_, false);
          after();
          return chosen;
        });
      });
    });
    EXPECT_EQ(told[0], told[1]);
    return told[0];
  };
  TANREN_EXPECT_CONTAINS(refusal([&] { exchange(); }), "rank 1 read another save than rank 0 of ");
  const fs::path step = folder_.path() / "a/checkpoints/step-5";
  EXPECT_THROW(refusal([&] { fs::remove_all(step); }), ConfigError);
}

TEST_F(ForkSourceOf, a_save_that_is_damaged_is_refused_and_one_that_is_gone_is_none) {
  const fs::path step = folder_.path() / "a/checkpoints/step-5";
  fs::resize_file(step / "model.safetensors", 20);
  EXPECT_THROW(open_fork(step), CheckpointError);
  // Issue 26: the error said that the run had replaced the save again and again.
  folder_.file("a/checkpoints/step-5/COMPLETE", "");
  TANREN_EXPECT_CONTAINS(testing::error_of<CheckpointError>([&] { choose_fork(config_, false); }),
                         "step-5/COMPLETE is empty; use an older step folder");
  fs::remove(step / "COMPLETE");
  fs::create_directory(step / "COMPLETE");  // it cannot be read
  EXPECT_THROW(open_fork(step), CheckpointError);
  fs::remove_all(step);
  EXPECT_FALSE(open_fork(step));
}

}  // namespace
}  // namespace tanren
