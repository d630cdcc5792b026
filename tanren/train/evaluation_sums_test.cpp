#include "tanren/train/evaluation_sums.h"

#include "tanren/base/error.h"
#include "tanren/base/task.h"
#include "tanren/base/testing.h"
#include "tanren/config/run_config.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <cmath>

namespace tanren {
namespace {

EvaluationSums evaluated(const std::vector<std::pair<std::string, double>>& values) {
  EvaluationSums sums;
  Terms terms;
  for (const auto& [name, value] : values) {
    terms.push_back({.name = name,
                     .sum = at::scalar_tensor(value, at::kDouble),
                     .count_name = name == "per_token" ? "tokens" : "samples"});
  }
  sums.add(terms);
  sums.add(Counts{{"samples", 2.0}});
  return sums;
}

Task task_of(std::vector<ObjectiveSpec> first, std::vector<ObjectiveSpec> second = {}) {
  Task task;
  task.phases.resize(2);
  task.phases[0].objectives = std::move(first);
  task.phases[1].objectives = std::move(second);
  return task;
}

using Factors = std::vector<double>;

TEST(EvaluationSums, weight_the_terms_in_the_loss_alone) {
  const TermWeights weights(task_of({{.terms = {{"a", 0.5}, {"b", -1}}}}), {});
  const auto means = evaluated({{"a", 6}, {"b", 8}, {"told", 2}}).means(weights);
  EXPECT_EQ(means.terms, (NamedValues{{"a", 3}, {"b", 4}, {"told", 1}}));
  EXPECT_EQ(means.loss, 0.5 * 3 - 4);
}

TEST(EvaluationSums, need_no_count_for_a_term_without_weight) {
  const EvaluationSums sums = evaluated({{"a", 6}, {"per_token", 8}});
  const auto means =
      sums.means(TermWeights(task_of({{.terms = {{"a", 1}, {"per_token", 0}}}}), {}));
  EXPECT_EQ(means.loss, 3);
  EXPECT_EQ(means.left_out, "");
  EXPECT_TRUE(std::isnan(means.terms.back().second));

  const auto without = sums.means({});
  EXPECT_EQ(without.loss, 3);
  TANREN_EXPECT_CONTAINS(without.left_out, "2 samples and 0 tokens to divide per_token by");
  EXPECT_THROW((void)evaluated({{"per_token", 8}}).means({}), NothingToEvaluate);
}

TEST(TermWeights, are_those_of_the_first_objective_that_gives_a_term_one) {
  const TermWeights gan(task_of({{.terms = {{"real", 0.5}, {"score", 0}}}},
                                {{.terms = {{"score", -1}, {"real", 3}}}}),
                        {});
  EXPECT_EQ(gan.factors({"real", "score", "told"}), (Factors{0.5, -1, 0}));
  EXPECT_EQ(gan.left_out({"real", "score", "told"}), std::vector<std::string>{"told"});
  // An objective without a list trains every term.
  const TermWeights open(task_of({{.terms = {{"aux", 0}, {"more", 2}}}, {.terms = {}}}), {});
  EXPECT_EQ(open.factors({"aux", "more", "cross_entropy"}), (Factors{1, 2, 1}));
  EXPECT_EQ(TermWeights().factors({"any"}), Factors{1});
}

TEST(TermWeights, are_the_configs_in_place_of_the_tasks) {
  RunConfig config;
  config.objectives["listed"].weights = {{"l1", 10}};
  config.objectives["open"].weights = {{"aux", 0}};
  const Task task = task_of({{.name = "listed", .terms = {{"gan", 1}, {"l1", 0}}}});
  EXPECT_EQ(TermWeights(task, config).factors({"gan", "l1"}), (Factors{1, 10}));
  EXPECT_EQ(TermWeights(task_of({{.name = "open"}}), config).factors({"a", "aux"}),
            (Factors{1, 0}));
}

TEST(TermWeights, are_1_if_no_term_of_predict_is_trained) {
  const TermWeights weights(task_of({{.terms = {{"main", 2}, {"quality", 0}}}}), {});
  EXPECT_EQ(weights.factors({"quality", "told"}), (Factors{1, 1}));
  EXPECT_EQ(weights.left_out({"quality", "told"}), std::vector<std::string>());
  EXPECT_EQ(weights.factors({"quality", "main"}), (Factors{0, 2}));
}

}  // namespace
}  // namespace tanren
