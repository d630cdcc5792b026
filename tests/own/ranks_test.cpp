// Users' programs on several ranks. An error on one rank ends all ranks, and loses no more than on
// a single rank. Issue 22.
#include "tests/own/fragile.h"

#include "tests/support/run_log.h"

namespace tanren::testing {
namespace {

// Its predict throws for batches with a sample index of `first` or more.
OwnFactory failing_to_predict(int64_t first) {
  return before_predict([first](const Batch& batch) {
    if (has_sample(batch.ids, first)) throw std::runtime_error("it failed");
  });
}

TEST(OwnRanks, end_together_where_the_forward_of_one_fails) {
  for (const bool is_exception : {true, false}) {
    OwnProgram program;
    // Rank 1 has the last four of every eight samples.
    program.factory = before_forward([is_exception](const Batch& batch) {
      if (!has_sample(batch.ids, 20)) return;
      if (is_exception) throw std::runtime_error("it failed");
      throw 42;
    });
    EXPECT_EQ(program.go("run", kTwoRanks), 1) << program.err;
    TANREN_EXPECT_CONTAINS(program.err, "[train] step 3, microbatch 0 (4 samples");
    TANREN_EXPECT_CONTAINS(program.err, ", rank 1 of 2: ");
    TANREN_EXPECT_CONTAINS(program.err, is_exception ? "it failed" : "no std::exception");
    program.expect_one_line();
    program.factory = own_task;
    EXPECT_EQ(program.go("run", kTwoRanks), 0) << program.err;
  }
}

TEST(OwnRanks, end_together_where_the_data_of_one_fail) {
  OwnProgram program;
  program.spoil_train = [](Collated&, const std::vector<int64_t>& indices) {
    if (indices.size() > 1 && indices.back() >= 20) throw 42;  // the start checks single samples
  };
  EXPECT_EQ(program.go("run", kTwoRanks), 2) << program.err;
  TANREN_EXPECT_CONTAINS(program.err, "[data] collate of samples 20, 21, 22, 23 failed: ");
  TANREN_EXPECT_CONTAINS(program.err, ", rank 1)");
  program.expect_one_line();
}

// Issue 22: rank 0 had five seconds to save a due checkpoint, and with sharded state no rank saved
// it.
TEST(OwnRanks, find_a_due_checkpoint_where_the_evaluation_of_one_fails_on_the_way) {
  // With the last key no checkpoint is due, but rank 0 writes one nevertheless.
  for (const char* key : {"checkpoint.every=2", "parallel.zero=1", "checkpoint.every=0"}) {
    auto words = kTwoRanks;
    for (const char* set : {"checkpoint.every=2", "evaluate.every=2", key}) {
      words.insert(words.end(), {"--set", set});
    }
    OwnProgram whole, cut;
    whole.evaluates = cut.evaluates = true;
    ASSERT_EQ(whole.go("run", words), 0) << whole.err;
    cut.factory = failing_to_predict(20);
    EXPECT_EQ(cut.go("run", words), 1) << cut.err;
    TANREN_EXPECT_CONTAINS(cut.err, ", rank 1 of 2: it failed");
    EXPECT_FALSE(contains(cut.err, "last checkpoint")) << "rank 0 knows it: " << cut.err;
    EXPECT_TRUE(cut.has_checkpoint(2)) << key;
    EXPECT_EQ(cut.attempts(), 2);
    cut.factory = own_task;
    ASSERT_EQ(cut.go("run", words), 0) << cut.err;
    expect_same_log(whole.run(), cut.run());
  }
}

TEST(OwnRanks, end_together_where_the_evaluation_of_one_fails_and_the_run_is_saved) {
  OwnProgram program;
  program.evaluates = true;
  // Rank 1 has the last twelve of the 24 samples; their first four are rehearsed at start.
  program.factory = failing_to_predict(20);
  EXPECT_EQ(program.go("run", kTwoRanks), 1) << program.err;
  TANREN_EXPECT_CONTAINS(program.err, "[train] evaluation (4 samples");
  TANREN_EXPECT_CONTAINS(program.err, ", rank 1 of 2: it failed");
  EXPECT_TRUE(program.has_checkpoint(4));
  program.factory = own_task;
  EXPECT_EQ(program.go("run", kTwoRanks), 0) << program.err;
  EXPECT_EQ(program.attempts(), 4);
  // An error in the first batch of a rank occurs before the first step.
  OwnProgram rehearsed;
  rehearsed.evaluates = true;
  rehearsed.factory = failing_to_predict(12);
  EXPECT_EQ(rehearsed.go("run", kTwoRanks), 1) << rehearsed.err;
  TANREN_EXPECT_CONTAINS(rehearsed.err, ", rank 1 of 2: it failed");
  EXPECT_EQ(rehearsed.attempts(), 0);
}

}  // namespace
}  // namespace tanren::testing
