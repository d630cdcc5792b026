// data.split: what a config may say, and what a change of it means.
#include "tanren/config/config_test_util.h"
#include "tanren/config/identity.h"
#include "tanren/config/write_config.h"

namespace tanren {
namespace {

using config_test::error_of;
using config_test::expect_contains;
using config_test::kGood;
using config_test::parse;

const std::string kSplitWithEval =
    std::string(kGood) + "[data.eval]\nkind = \"csv\"\npath = \"e.csv\"\n";

TEST(ValidateSplit, refuses_shares_that_leave_a_part_without_rows) {
  for (const char* share : {"1", "1.5", "-0.1"}) {
    const std::string error = error_of(kGood, {std::string("data.split=") + share});
    expect_contains(error, "data.split is ");
    expect_contains(error, "; it must lie in [0, 1)");
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
  for (const std::string share : {"nan", "inf"}) {
    expect_contains(error_of(kGood, {"data.split=" + share}),
                    "data.split must be a number, not " + share);
  }
  expect_contains(error_of(kGood, {"data.split=a tenth"}), "data.split must be a number");
}

TEST(ValidateSplit, refuses_a_second_source_of_evaluation_data) {
  expect_contains(error_of(kSplitWithEval, {"data.split=0.1"}),
                  "data.split is 0.1 and data.eval.kind is set; evaluation data come from one of "
                  "them: drop data.split, or [data.eval]");
  EXPECT_EQ(parse(kSplitWithEval, {"data.split=0"}).data.split, 0);
}

TEST(ValidateSplit, refuses_keys_of_evaluation_data_beside_it) {
  expect_contains(error_of(std::string(kGood) + "[data.eval]\nlabel = \"y\"\n", {"data.split=0.1"}),
                  "data.eval.label is set beside data.split, whose evaluation part is read as "
                  "data.train says; drop it");
}

TEST(ValidateSplit, gives_what_needs_evaluations) {
  const std::vector<std::string> needs = {"evaluate.every=5", "checkpoint.best=1",
                                          "schedule.kind=reduce_on_plateau"};
  expect_contains(error_of(kGood, needs), "add [data.eval]");
  auto with_split = needs;
  with_split.emplace_back("data.split=0.2");
  EXPECT_TRUE(has_evaluation(parse(kGood, with_split).data));
  EXPECT_FALSE(has_evaluation(parse(kGood).data));
  EXPECT_TRUE(has_evaluation(parse(kSplitWithEval).data));
}

TEST(ValidateSplit, another_share_is_another_run) {
  const RunConfig none = parse(kGood), tenth = parse(kGood, {"data.split=0.1"});
  EXPECT_EQ(differing_keys(none, tenth, {"data.split"}),
            std::vector<std::string>{"data.split: 0.0 → 0.1"});
  EXPECT_TRUE(differing_keys(tenth, parse(to_toml(tenth)), {}).empty());
}

}  // namespace
}  // namespace tanren
