#include "tanren/plan/planner.h"

#include "tanren/base/error.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

struct Frozen {
  RunConfig config;
  ModelProfile profile;

  Frozen() {
    config.run.steps = 100;
    profile.train_samples = 100;
    profile.metrics = {"accuracy"};
    profile.parameters = {{"stem.weight", {10, 10}, false},
                          {"blocks.0.weight", {10, 20}, false},
                          {"blocks.1.weight", {20, 20}, false},
                          {"blocks.1.bias", {20}, false},
                          {"head.weight", {20, 5}, true}};
    profile.num_parameters = 820;
    profile.num_trainable = 100;
    profile.still = {"stem", "blocks"};
    config.model.freeze = {"*"};
    config.model.unfreeze = {{{"head.*"}, 0}};
  }
  Plan plan() const { return make_plan(config, {}, profile); }
  std::string line(const std::string& key) const {
    for (const auto& line : plan().lines) {
      if (line.key == key) return line.value + "|" + line.reason;
    }
    return "";
  }
};

TEST(FreezePass, a_group_of_parameters_that_are_never_trained_is_refused) {
  Frozen frozen;
  frozen.config.optimizer.groups = {{{"blocks.1.*"}, 0.1, {}}};
  EXPECT_THROW(frozen.plan(), ConfigError);
  frozen.config.model.unfreeze.push_back({{"blocks.1.*"}, 10});
  EXPECT_NO_THROW(frozen.plan());
}

TEST(FreezePass, tells_what_is_frozen_and_what_stands_still) {
  Frozen frozen;
  EXPECT_EQ(frozen.line("freeze"),
            "*|4 tensors, 720 parameters of 820 without gradient and optimizer state; no "
            "statistics move and no dropout draws in stem, blocks");
  EXPECT_TRUE(frozen.plan().freeze.unfreezes.empty());
  frozen.config.model = {};
  EXPECT_EQ(frozen.line("freeze").find("|4 tensors, 720 parameters frozen by the model itself"),
            0u);
}

// The scale of a layer's input, in a quantisation-aware training.
TEST(FreezePass, unfreezes_a_scale_with_its_weight_unless_a_pattern_is_of_the_scale_alone) {
  Frozen frozen;
  frozen.config.model.freeze = {"*.weight"};
  frozen.config.model.unfreeze = {{{"blocks.1.weight"}, 20}};
  frozen.profile.parameters.push_back(
      {"blocks.1.input_scale", {1}, false, false, "blocks.1.weight"});
  const auto unfrozen = [&] { return frozen.plan().freeze.unfreezes.at(0).parameters; };
  using Names = std::vector<std::string>;
  EXPECT_EQ(unfrozen(), (Names{"blocks.1.weight", "blocks.1.input_scale"}));
  frozen.config.model.freeze = {"blocks.*"};
  EXPECT_EQ(unfrozen(), (Names{"blocks.1.weight", "blocks.1.input_scale"}));
  frozen.config.model.freeze = {"*.weight", "*.input_scale"};
  EXPECT_EQ(unfrozen(), Names{"blocks.1.weight"});
  frozen.config.model.unfreeze = {{{"*.input_scale"}, 20}};
  EXPECT_EQ(unfrozen(), Names{"blocks.1.input_scale"});
}

TEST(FreezePass, unfreezes_a_tied_weight_and_its_scale_by_whichever_of_its_names_matches) {
  Frozen frozen;
  frozen.profile.parameters.push_back(
      {.name = "tied.weight", .shape = {10, 10}, .trained = false, .first = "stem.weight"});
  frozen.profile.parameters.push_back(
      {.name = "stem.input_scale", .shape = {1}, .trained = false, .follows = "stem.weight"});
  frozen.config.model.freeze = {"tied.*"};
  frozen.config.model.unfreeze = {{{"tied.*"}, 20}};
  using Names = std::vector<std::string>;
  const auto unfrozen = [&] { return frozen.plan().freeze.unfreezes.at(0).parameters; };
  EXPECT_EQ(unfrozen(), (Names{"stem.weight", "tied.weight", "stem.input_scale"}));
  frozen.config.model.freeze = {"tied.*", "stem.input_scale"};
  EXPECT_EQ(unfrozen(), (Names{"stem.weight", "tied.weight"}));
}

TEST(FreezePass, tells_each_unfreeze_with_what_is_trained_then_and_counts_the_earliest) {
  Frozen frozen;
  frozen.config.model.unfreeze.push_back({{"*"}, 60});
  frozen.config.model.unfreeze.push_back({{"blocks.1.*"}, 20});
  const auto unfreezes = frozen.plan().freeze.unfreezes;
  ASSERT_EQ(unfreezes.size(), 2u);
  EXPECT_EQ(unfreezes[0].step, 20);
  EXPECT_EQ(unfreezes[0].parameters,
            (std::vector<std::string>{"blocks.1.weight", "blocks.1.bias"}));
  EXPECT_EQ(unfreezes[1].parameters, (std::vector<std::string>{"stem.weight", "blocks.0.weight"}));
  EXPECT_EQ(frozen.line("unfreeze@20"),
            "blocks.1.*|2 tensors, 420 parameters more once 20 steps are applied, their optimizer "
            "state from 0; then 520 of 820 are trained");
  EXPECT_NE(frozen.line("optimizer").find("804 B, 6.4 KiB once all is unfrozen"), std::string::npos)
      << frozen.line("optimizer");
}

TEST(FreezePass, an_unfreeze_beyond_the_end_of_the_run_is_told) {
  Frozen frozen;
  frozen.config.model.unfreeze.push_back({{"blocks.*"}, 100});
  EXPECT_EQ(frozen.line("unfreeze@100"), "blocks.*|never: the run ends after 100 steps");
  EXPECT_EQ(frozen.line("optimizer").find("once all is unfrozen"), std::string::npos);
}

TEST(FreezePass, the_rate_of_a_layer_does_not_depend_on_what_is_frozen) {
  Frozen frozen;
  frozen.config.optimizer.layer_decay = 0.5;
  EXPECT_NE(frozen.line("layer_decay").find("× 0.125 stem.weight"), std::string::npos)
      << frozen.line("layer_decay");
}

}  // namespace
}  // namespace tanren
