#include "tanren/train/run_state.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/model/registry.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

namespace tanren {
namespace {

// A model whose body and head are of two objectives.
Task of_two_objectives() {
  ModelOptions options;
  options.kind = "convnet";
  options.channels = {4, 8};
  Task task = ModelRegistry().make(options, DataInfo{{1, 8, 8}, 3});
  task.phases[0].objectives = {{.name = "body", .terms = {}, .parameters = {"st*"}},
                               {.name = "head", .terms = {}, .parameters = {"head.*"}}};
  return task;
}

Plan plan_of(OptimizerOptions options) {
  Plan plan;
  plan.optimizer = with_defaults(std::move(options));
  return plan;
}

// Issue 21: patterns that belong to one objective's parameters were refused by the other.
TEST(Objectives, take_patterns_of_the_whole_model_and_refuse_those_of_none) {
  const Task task = of_two_objectives();
  OptimizerOptions options;
  options.groups = {{{"head.*"}, 0.5, std::nullopt}, {{"stem.*"}, 0.25, std::nullopt}};
  options.state = "8bit";
  options.fp32_state = {"head.*"};
  const auto phases = make_phases(task, plan_of(options));
  const auto scale_of = [&](size_t objective, const std::string& name) {
    for (const auto& group : phases[0].objectives[objective].optimizer_options.groups) {
      if (group.parameters == std::vector<std::string>{name}) return *group.learning_rate_scale;
    }
    ADD_FAILURE() << name;
    return 0.0;
  };
  EXPECT_EQ(scale_of(0, "stem.conv.weight"), 0.25);
  EXPECT_EQ(scale_of(0, "stages.0.conv1.weight"), 1);
  EXPECT_EQ(scale_of(1, "head.weight"), 0.5);
  for (auto* patterns : {&options.groups[0].parameters, &options.fp32_state}) {
    const auto kept = *patterns;
    *patterns = {"haed.*"};
    TANREN_EXPECT_CONTAINS(
        testing::error_of<ConfigError>([&] { make_phases(task, plan_of(options)); }),
        "the pattern 'haed.*' matches no parameter");
    *patterns = kept;
  }
}

TEST(Objectives, have_the_rates_of_layers_that_are_counted_over_the_whole_model) {
  const Task task = of_two_objectives();
  OptimizerOptions options;
  options.layer_decay = 0.5;
  options.layers = {"stem.*", "stages.{}.*", "head.*"};
  const auto phases = make_phases(task, plan_of(options));
  const auto& head = phases[0].objectives[1].optimizer_options.groups;
  ASSERT_FALSE(head.empty());
  for (const auto& group : head) EXPECT_EQ(*group.learning_rate_scale, 1);
  EXPECT_EQ(*phases[0].objectives[0].optimizer_options.groups[0].learning_rate_scale, 0.125);
}

}  // namespace
}  // namespace tanren
