#include "tanren/config/config_test_util.h"
#include "tanren/config/identity.h"
#include "tanren/config/write_config.h"

namespace tanren {
namespace {

using config_test::error_of;
using config_test::expect_contains;
using config_test::kGood;
using config_test::parse;

struct TableCase {
  std::vector<std::string> sets;
  const char* part;
};

const std::vector<std::string> kEvaluated = {"data.eval.kind=csv", "data.eval.path=e.csv"};

TEST(ValidateTable, refuses_columns_that_contradict_themselves) {
  const TableCase cases[] = {
      {{"data.train.columns=[a]", "data.train.ignore=[b]"},
       "data.train.columns and ignore both choose columns; drop one"},
      {{"data.train.standardize=true", "data.train.scale=0.5"},
       "data.train.standardize and scale or offset both change numbers"},
      {{"data.train.standardize=true", "data.train.offset=1"},
       "data.train.standardize and scale or offset both change numbers"},
      {{"data.train.missing=median"},
       "data.train.missing \"median\" is unknown; one of error, mean"},
      {{"data.train.decimal=;"}, "data.train.decimal \";\" is unknown"},
      {{"data.train.delimiter=x"}, "data.train.delimiter is \"x\"; give one of , ; | : or tab"},
      {{"data.train.delimiter=,,"}, "data.train.delimiter is \",,\""},
      {{"data.train.class_names=[a, a]"}, "has an empty name or one twice"},
  };
  for (const auto& [sets, part] : cases) expect_contains(error_of(kGood, sets), part);
}

TEST(ValidateTable, refuses_an_evaluation_that_is_read_in_another_way) {
  const TableCase cases[] = {
      {{"data.train.columns=[a]", "data.eval.columns=[b]"},
       "data.eval.columns differs from data.train.columns; one model sees both"},
      {{"data.eval.ignore=[b]"}, "data.eval.ignore differs"},
      {{"data.eval.categories=[b]"}, "data.eval.categories differs"},
      {{"data.eval.standardize=true"}, "data.eval.standardize differs"},
      {{"data.eval.missing=mean"}, "data.eval.missing differs"},
      {{"data.eval.class_names=[a, b]"}, "data.eval.class_names differs"},
      {{"data.train.kind=tensors", "data.eval.standardize=true"},
       "need what a data.train.kind \"csv\" has measured"},
  };
  for (auto [sets, part] : cases) {
    sets.insert(sets.end(), kEvaluated.begin(), kEvaluated.end());
    expect_contains(error_of(kGood, sets), part);
  }
  std::vector<std::string> same = {"data.train.columns=[a]",  "data.train.standardize=true",
                                   "data.train.missing=mean", "data.train.delimiter=;",
                                   "data.eval.delimiter=tab", "data.eval.decimal=,"};
  same.insert(same.end(), kEvaluated.begin(), kEvaluated.end());
  const RunConfig config = parse(kGood, same);
  EXPECT_EQ(config.data.train.columns, std::vector<std::string>{"a"});
  EXPECT_TRUE(config.data.eval.columns.empty()) << "it has those of training";
  std::vector<std::string> said = {"data.eval.missing=error", "data.train.delimiter=,",
                                   "data.train.decimal=,"};
  said.insert(said.end(), kEvaluated.begin(), kEvaluated.end());
  EXPECT_EQ(parse(kGood, said).data.eval.missing, "error") << "as training's default";
}

TEST(ValidateTable, refuses_its_keys_for_other_kinds_of_data) {
  for (const char* set : {"columns=[a]", "ignore=[a]", "categories=[a]", "standardize=true",
                          "missing=zero", "decimal=,", "delimiter=;", "class_names=[a, b]"}) {
    const std::string key = std::string(set).substr(0, std::string(set).find('='));
    expect_contains(
        error_of(kGood, {"data.train.kind=tensors", std::string("data.train.") + set}),
        "data.train." + key + " has no meaning for data.train.kind \"tensors\"; drop it");
  }
}

TEST(ValidateTable, every_key_is_written_and_read_back) {
  const RunConfig config = parse(
      kGood, {"data.train.columns=[\"x*\", \"a, b\"]", "data.train.categories=[xc]",
              "data.train.standardize=true", "data.train.missing=mean", "data.train.delimiter=;",
              "data.train.decimal=,", "data.train.class_names=[\"no\", \"yes\"]"});
  const std::string text = to_toml(config);
  RunConfig back = parse(text);
  back.asked = config.asked;
  EXPECT_EQ(to_toml(back), text);
  EXPECT_TRUE(differing_keys(config, back).empty());
  RunConfig moved = config;
  moved.data.train.delimiter = "tab";
  moved.data.train.decimal = ".";
  EXPECT_TRUE(differing_keys(config, moved).empty()) << "the same table, written anew";
  moved.data.train.standardize = false;
  EXPECT_EQ(differing_keys(config, moved).size(), 1u);
}

TEST(ValidateTable, knows_the_words_that_people_bring) {
  expect_contains(error_of(kGood, {"data.train.sep=;"}), "data.train.delimiter");
  expect_contains(error_of(kGood, {"data.train.usecols=[a]"}), "data.train.columns");
}

}  // namespace
}  // namespace tanren
