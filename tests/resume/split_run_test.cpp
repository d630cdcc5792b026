// Runs whose evaluation data are a part of training's source: data.split (issue 26).
#include "tests/support/fork_run.h"

namespace tanren::testing {
namespace {

class SplitRun : public ForkRun {
 protected:
  SplitRun() {
    folder_.file("run.toml",
                 "[run]\nsteps = 8\nthreads = 1\nseed = 3\n[model]\nkind = \"mlp\"\nhidden = [8]\n"
                 "[data]\nsplit = 0.25\n[data.train]\nkind = \"csv\"\npath = \"train.csv\"\n"
                 "classes = 3\n[batch]\nglobal_batch = 4\n[precision]\nmode = \"fp32\"\n"
                 "[evaluate]\nevery = 4\n");
  }
  nlohmann::json evaluated(const std::string& arguments) const {
    const auto result = tanren("eval " + arguments + " --json");
    EXPECT_EQ(result.code, 0) << arguments << "\n" << result.output;
    return nlohmann::json::parse(result.output, nullptr, /*allow_exceptions=*/false);
  }
};

TEST_F(SplitRun, on_too_few_rows_is_refused_in_one_line) {
  folder_.file("train.csv", "label,a,b\n0,1,2\n1,1,2\n2,1,2\n");
  expect_refused(
      "run run.toml --quiet --out out",
      {"[data.train] data.split = 0.25 finds none of 3 rows for evaluation: no class has "
       "two different ones; give more data, or drop it and give [data.eval]"});
}

TEST_F(SplitRun, beside_evaluation_data_is_refused) {
  expect_refused(
      "run run.toml --quiet --out out --set data.eval.kind=csv "
      "--set data.eval.path=eval.csv --set data.eval.classes=3",
      {"data.split is 0.25 and data.eval.kind is set"});
}

TEST_F(SplitRun, trains_on_one_part_and_evaluates_on_the_other) {
  expect_code("run run.toml --quiet --out out", 0, {});
  TANREN_EXPECT_CONTAINS(
      plan_line("out", "data.split"),
      "evaluation gets 6 of 24 rows (25.0 %, by hash, stratified over 3 classes)");
  TANREN_EXPECT_CONTAINS(plan_line("out", "steps_per_epoch"), "18 samples");
  TANREN_EXPECT_CONTAINS(plan_line("out", "evaluate"), "6 samples, each once");
  const auto summary = nlohmann::json::parse(read_file(at("out") / "summary.json"));
  const auto own = evaluated("out");
  EXPECT_EQ(own["samples"], 6);
  ASSERT_TRUE(own["evaluate.loss"].is_number()) << own;
  EXPECT_EQ(own["evaluate.loss"], summary["evaluate.loss"]) << summary;
}

TEST_F(SplitRun, is_evaluated_on_all_of_a_file_that_is_named) {
  expect_code("run run.toml --quiet --out out", 0, {});
  const auto all = evaluated("out train.csv");
  EXPECT_EQ(all["samples"], 24);
  const auto model = evaluated("out/model.tanren.safetensors train.csv");
  EXPECT_EQ(model["samples"], 24);
  EXPECT_EQ(model["evaluate.loss"], all["evaluate.loss"]);
  EXPECT_EQ(evaluated("out eval.csv")["samples"], 9);
  expect_code("eval out none.csv", 2, {"none.csv"});

  expect_code("predict out train.csv --out all.csv", 0, {});
  const std::string answers = read_file(at("all.csv"));
  EXPECT_EQ(std::count(answers.begin(), answers.end(), '\n'), 25) << answers;
}

TEST_F(SplitRun, stopped_and_resumed_is_bitwise_the_undisturbed_run) {
  expect_code("run run.toml --quiet --out whole", 0, {});
  stop_after("out", 3);
  stop_after("out", 5);
  expect_code("run out --quiet", 0, {});
  EXPECT_EQ(plain_log("out"), plain_log("whole"));
  EXPECT_EQ(weights("out"), weights("whole"));
}

TEST_F(SplitRun, goes_on_with_another_share_only_as_a_fork) {
  stop_after("out", 4);
  const std::string before = read_file(at("out") / "log.jsonl");
  expect_refused("run out --quiet --set data.split=0.5", {"data.split: 0.25 → 0.5", "--fork"});
  expect_refused("run out --quiet --set data.split=0", {"data.split: 0.25 → 0.0"});
  EXPECT_EQ(read_file(at("out") / "log.jsonl"), before);
  expect_code("run out --quiet --fork --out other --set data.split=0.5", 0, {});
  TANREN_EXPECT_CONTAINS(plan_line("other", "fork_data"), "from the first epoch: other data");
  TANREN_EXPECT_CONTAINS(plan_line("other", "data.split"), "evaluation gets 12 of 24 rows");
}

TEST_F(SplitRun, of_other_rows_is_refused_as_other_data) {
  stop_after("out", 4);
  folder_.file("train.csv", rows(48));
  expect_code("run out --quiet", 2, {"[data] 36 samples of data.train, ", "was made with 18"});
}

TEST_F(SplitRun, on_two_ranks_has_the_parts_of_one) {
  expect_code("run run.toml --quiet --out one", 0, {});
  expect_code("launch -n 2 run run.toml --quiet --out two", 0, {});
  const auto one = evaluated("one"), two = evaluated("two");
  EXPECT_EQ(two["samples"], 6);
  EXPECT_NEAR(two["evaluate.loss"].get<double>(), one["evaluate.loss"].get<double>(), 1e-5);
  EXPECT_EQ(plan_line("two", "data.split"), plan_line("one", "data.split"));
}

}  // namespace
}  // namespace tanren::testing
