// data.split of a user's program, and the file that its evaluation names (issue 26).
#include "tanren/data/split.h"
#include "tanren/run/run.h"
#include "tests/own/fragile.h"

#include <set>

namespace tanren::testing {
namespace {

// The rows of OwnPoints that these inputs are of.
std::set<int64_t> rows_of_points(const Batch& batch) {
  const at::Tensor first = batch["inputs"].select(1, 0).to(at::kDouble).cpu();
  std::set<int64_t> rows;
  for (int64_t i = 0; i < first.numel(); ++i) {
    for (int64_t row = 0; row < 24; ++row) {
      const double apart = std::sin(static_cast<double>(row)) - first[i].item<double>();
      if (std::abs(apart) < 1e-4) rows.insert(row);
    }
  }
  return rows;
}

std::set<int64_t> part_of_points(bool eval) {
  std::vector<uint64_t> hashes;
  for (int64_t row = 0; row < 24; ++row) hashes.push_back(split_hash(row));
  const auto rows = split_rows(hashes, {}, 0.25, eval);
  return {rows.begin(), rows.end()};
}

TEST(OwnSplit, trains_and_estimates_statistics_on_one_part_and_evaluates_the_other) {
  std::set<int64_t> trained, evaluated;
  OwnProgram program;
  program.factory = before_forward(
      [&](const Batch& batch) { trained.merge(rows_of_points(batch)); },
      before_predict([&](const Batch& batch) { evaluated.merge(rows_of_points(batch)); },
                     fragile_task));
  ASSERT_EQ(program.go("run", averaging({"--set", "data.split=0.25"})), 0) << program.err;
  EXPECT_EQ(trained, part_of_points(false));
  EXPECT_EQ(evaluated, part_of_points(true));
  for (auto* rows : {&trained, &evaluated}) rows->clear();
  ASSERT_EQ(program.go("eval", {program.run().string()}), 0) << program.err;
  EXPECT_EQ(trained, part_of_points(false));  // the estimate alone
  EXPECT_EQ(evaluated, part_of_points(true));
}

TEST(OwnSplit, of_another_share_is_not_evaluated) {
  OwnProgram program;
  ASSERT_EQ(program.go("run", {"--set", "data.split=0.25"}), 0) << program.err;
  EXPECT_EQ(program.go("eval", {program.run().string(), "--set", "data.split=0.5"}), 2);
  TANREN_EXPECT_CONTAINS(program.err, "was trained with 0.25: this is not the part");
  program.expect_one_line();
}

TEST(OwnEval, of_a_file_that_is_not_there_or_that_the_kind_does_not_read_is_refused) {
  OwnProgram program;
  program.evaluates = true;
  const std::string file = program.folder.file("rows.csv", "a\n");
  const std::string run = program.run().string(), absent = program.at("absent.csv").string();
  ASSERT_EQ(program.go("run"), 0) << program.err;
  EXPECT_EQ(program.go("eval", {run, absent}), 2);
  TANREN_EXPECT_CONTAINS(program.err, "absent.csv does not exist; name a file or folder");
  program.expect_one_line();
  EXPECT_EQ(program.go("eval", {run, file}), 2);
  TANREN_EXPECT_CONTAINS(program.err,
                         "[eval] data.eval.path is empty, so this run's data of kind 'points' are "
                         "read from no file, and not from ");
  program.expect_one_line();

  OwnProgram reads;
  const std::string from = reads.folder.file("rows.csv", "a\n");
  ASSERT_EQ(reads.go("run", {"--set", "data.train.path=" + from}), 0) << reads.err;
  EXPECT_EQ(reads.go("eval", {reads.run().string(), from}), 0) << reads.err;
  EXPECT_EQ(reads.go("eval", {reads.run().string(), reads.at("absent").string()}), 2);
}

RunConfig config_of_texts() {
  RunConfig config;
  SourceOptions& source = config.data.eval;
  source = {.kind = "text", .path = "/texts", .context = 8};
  source.include = {"a*"};
  source.exclude = {"b*"};
  source.part = {0, 0.5};
  source.tokenizer = "/words";
  source.class_names = {"no", "yes"};
  source.flip = 0.5;
  return config;
}

TEST(EvaluatedOn, reads_all_of_a_file_as_evaluations_do_but_for_what_is_asked_for) {
  const RunConfig config = config_of_texts();
  const SourceOptions all = evaluated_on(config, "/file").data.eval;
  EXPECT_EQ(all.path, "/file");
  EXPECT_EQ(all.context, 8);
  EXPECT_TRUE(all.include.empty() && all.exclude.empty() && all.part.empty());
  EXPECT_TRUE(all.tokenizer.empty() && all.class_names.empty());
  EXPECT_EQ(all.flip, 0);

  const std::set<std::string> keys{"data.eval.include", "data.eval.part", "data.eval.tokenizer",
                                   "data.eval.class_names", "run.threads"};
  const SourceOptions asked = evaluated_on(config, "/file", keys).data.eval;
  EXPECT_EQ(asked.path, "/file");
  EXPECT_EQ(asked.include, config.data.eval.include);
  EXPECT_EQ(asked.part, config.data.eval.part);
  EXPECT_EQ(asked.tokenizer, "/words");
  EXPECT_EQ(asked.class_names, config.data.eval.class_names);
  EXPECT_TRUE(asked.exclude.empty());
}

TEST(EvaluatedOn, takes_what_is_asked_for_of_the_training_data_if_there_are_no_others) {
  RunConfig config = config_of_texts();
  config.data.train = std::exchange(config.data.eval, {});
  config.data.split = 0.1;
  const RunConfig on = evaluated_on(config, "/file", {"data.train.exclude", "data.eval.include"});
  EXPECT_EQ(on.data.eval.kind, "text");
  EXPECT_EQ(on.data.eval.exclude, config.data.train.exclude);
  EXPECT_TRUE(on.data.eval.include.empty());
  EXPECT_EQ(on.data.train.path, "/texts");
}

TEST(EvaluatedOn, refuses_two_places) {
  const auto both = [] { (void)evaluated_on(config_of_texts(), "/file", {"data.eval.path"}); };
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>(both),
                         "[eval] data.eval.path is set and /file is named; drop one of them");
}

}  // namespace
}  // namespace tanren::testing
