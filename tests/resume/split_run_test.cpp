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
  // The table of rows(24) with the same numbers written differently, so that their hashes differ.
  static std::string saved_again() {
    std::string text = "label,a,b\n";
    for (int i = 0; i < 24; ++i)
      text += std::to_string(i % 3) + "," + std::to_string(i) + ",0.50\n";
    return text;
  }
  // The lines of a table behind its header.
  std::vector<std::string> lines_of(const std::string& file) const {
    std::istringstream text(read_file(at(file)));
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    if (!lines.empty()) lines.erase(lines.begin());
    return lines;
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

// The evaluation of a split reads its rows as training does.
TEST_F(SplitRun, forked_with_rows_that_are_read_in_another_way_compares_evaluations_anew) {
  stop_after("a", 3, "--set evaluate.every=1 --set early_stop.patience=9");
  expect_code("run a --quiet --fork --out b --set data.train.classes=0", 0, {});
  TANREN_EXPECT_CONTAINS(plan_line("b", "fork_evaluations"), "another data.train.classes");
  expect_code("run a --quiet --fork --out c", 0, {});
  TANREN_EXPECT_CONTAINS(plan_line("c", "fork_evaluations"), "  taken ");
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
  stop_after("out", 2);  // of this start
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
  TANREN_EXPECT_CONTAINS(plan_line("other", "fork_split"), "seen");
  TANREN_EXPECT_CONTAINS(
      plan_line("other", "fork_split"),
      "evaluation has rows that the weights were trained on: data.split was 0.25 there");
}

TEST_F(SplitRun, forked_says_when_its_weights_have_seen_the_rows_that_it_evaluates) {
  const auto plan_of = [&](const std::string& arguments) {
    const auto result = tanren("plan " + arguments);
    EXPECT_EQ(result.code, 0) << result.output;
    return result.output;
  };
  stop_after("out", 4);
  for (const char* share : {"0.25", "0.1"}) {
    const std::string plan = plan_of(std::string("out --fork --out a --set data.split=") + share);
    TANREN_EXPECT_CONTAINS(plan, "fork_from");
    EXPECT_EQ(plan.find("fork_split"), std::string::npos) << plan;
  }
  folder_.file("train.csv", saved_again());
  TANREN_EXPECT_CONTAINS(plan_of("out --fork --out a"),
                         "evaluation may have rows that the weights were trained on: other data: "
                         "choice of rows of data.eval");
  folder_.file("train.csv", rows(24));

  stop_after("whole", 4, "--set data.split=0 --set evaluate.every=0");
  expect_code("run whole --quiet --fork --out b --set data.split=0.25 --set run.stop_after=2", 0,
              {});
  const std::string seen =
      "evaluation has rows that the weights were trained on: there was no data.split there";
  TANREN_EXPECT_CONTAINS(plan_line("b", "fork_split"), seen);
  TANREN_EXPECT_CONTAINS(plan_of("b --fork --out c"), seen);  // b's weights began without a split
}

TEST_F(SplitRun, is_evaluated_on_no_other_part_than_the_one_that_was_held_out) {
  expect_code("run run.toml --quiet --out out", 0, {});
  const std::string before = evaluated("out").dump();
  const std::string advice = ", or name a file to evaluate on";
  for (const char* weights : {"latest", "exported"}) {
    const std::string eval = std::string("eval out --set evaluate.checkpoint=") + weights;
    for (const char* share : {"0.5", "0.1"}) {
      expect_refused(
          eval + " --set data.split=" + share,
          {std::string("[eval] data.split is ") + share + ", and ",
           " was trained with 0.25: this is not the part that was kept from its training", advice});
    }
    folder_.file("train.csv", saved_again());
    expect_refused(eval,
                   {"[eval] choice of rows of data.train are not those that ", "step-8",
                    "evaluation may get rows that it was trained on; put these data back", advice});
    folder_.file("train.csv", rows(27));
    expect_refused(eval,
                   {"[eval] 21 samples of data.train, ", " was made with 18, so evaluation "});
    EXPECT_EQ(evaluated("out train.csv")["samples"], 27);
    folder_.file("train.csv", rows(24));
    expect_code(eval, 0, {"6 samples"});
  }
  EXPECT_EQ(evaluated("out").dump(), before);
}

TEST_F(SplitRun, names_the_rows_of_the_source_beside_its_predictions) {
  expect_code("run run.toml --quiet --out out", 0, {});
  expect_code("eval out --predictions part.csv", 0, {});
  expect_code("eval out train.csv --predictions all.csv", 0, {});
  const auto part = lines_of("part.csv"), all = lines_of("all.csv");
  ASSERT_EQ(part.size(), 6U);
  ASSERT_EQ(all.size(), 24U);
  std::vector<size_t> rows;
  for (const std::string& line : part) {
    rows.push_back(std::stoul(line));
    // row, target and label; the score of another batch may differ in its last digit
    const auto answer = [](const std::string& text) { return text.substr(0, text.rfind(',')); };
    EXPECT_EQ(answer(line), answer(all.at(rows.back())));
  }
  // XXH3 of the lines "0,15,0.5", … chooses these.
  EXPECT_EQ(rows, (std::vector<size_t>{11, 13, 15, 21, 22, 23}));
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
  for (const char* run : {"one", "two"}) {
    TANREN_EXPECT_CONTAINS(plan_line(run, "data.split"), "evaluation gets 6 of 24 rows");
  }
}

}  // namespace
}  // namespace tanren::testing
