#include "tanren/base/error.h"
#include "tanren/plan/planner.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

struct Wanted {
  RunConfig config;
  ModelProfile profile;

  Wanted() {
    profile.train_samples = 100;
    profile.metrics = {"accuracy"};
    profile.parameters = {{"wte.weight", {100, 10}},
                          {"h.0.weight", {10, 20}},
                          {"h.0.bias", {20}},
                          {"h.1.weight", {4, 2, 3, 3}}};
    profile.num_trainable = 1292;
  }
  Plan plan() const { return make_plan(config, {}, profile); }
  ObjectivePlan first() const { return plan().objectives.front(); }
  std::string reason(const std::string& key) const {
    for (const auto& line : plan().lines) {
      if (line.key == key) return line.value + "|" + line.reason;
    }
    return "";
  }
};

TEST(OptimizerPass, a_layer_pattern_without_match_is_refused) {
  Wanted wanted;
  wanted.config.optimizer.layer_decay = 0.5;
  wanted.config.optimizer.layers = {"h.{}.*", "hd.*"};
  EXPECT_THROW(wanted.plan(), ConfigError);
}

TEST(OptimizerPass, fills_what_the_kind_decides) {
  Wanted wanted;
  EXPECT_EQ(wanted.first().optimizer.weight_decay, 0.01);
  wanted.config.optimizer.kind = "muon";
  EXPECT_EQ(wanted.first().optimizer.weight_decay, 0.1);
  EXPECT_EQ(wanted.first().optimizer.nesterov, true);
  wanted.config.optimizer.momentum = 0.5;
  EXPECT_EQ(wanted.first().optimizer.momentum, 0.5);
}

TEST(OptimizerPass, names_the_state_and_its_size) {
  Wanted wanted;
  EXPECT_EQ(wanted.reason("optimizer"),
            "adamw|state: exp_avg, exp_avg_sq; 8.01 bytes per trained parameter, 10 KiB");
  wanted.config.optimizer.state = "8bit";  // all are small, or embeddings
  EXPECT_NE(wanted.reason("optimizer").find("8.01 bytes"), std::string::npos);
  wanted.profile.parameters.push_back({"h.0.weight", {1000, 256}, true});
  EXPECT_EQ(wanted.reason("optimizer"),
            "adamw|state: exp_avg, exp_avg_sq in 8bit (small ones in fp32); 2.06 bytes per trained "
            "parameter, 518 KiB");
  wanted.config.optimizer.state = "bf16";
  EXPECT_NE(wanted.reason("optimizer").find("4.02 bytes"), std::string::npos);
  wanted.profile.parameters.pop_back();
  wanted.config.optimizer.state = "fp32";
  wanted.config.optimizer.kind = "sgd";
  EXPECT_EQ(wanted.reason("optimizer"), "sgd|state: none; 0 bytes per trained parameter, 0 B");
  wanted.config.optimizer.kind = "adafactor";
  // (100 + 10) + (10 + 20) + 20 + (4 × 2 × 3 + 4 × 2 × 3) numbers and 4 steps, 4 bytes each.
  EXPECT_EQ(wanted.reason("optimizer"),
            "adafactor|state: variance by rows and columns (1-dim: whole); 0.66 bytes per trained "
            "parameter, 848 B");
  wanted.config.optimizer.kind = "muon";
  // 8 bytes and a step of wte and the bias, 4 bytes of the matrices.
  EXPECT_NE(wanted.reason("optimizer").find("7.16 bytes"), std::string::npos)
      << wanted.reason("optimizer");
  wanted.config.precision.mode = "fp64";
  wanted.config.optimizer.kind = "lion";
  EXPECT_NE(wanted.reason("optimizer").find("; 8 bytes"), std::string::npos);
}

TEST(OptimizerPass, tells_the_rate_of_each_layer) {
  Wanted wanted;
  wanted.config.optimizer.layer_decay = 0.5;
  EXPECT_EQ(wanted.reason("layer_decay"),
            "0.5|3 layers: × 0.25 wte.weight …, × 0.5 h.0.weight …, × 1 h.1.weight …");
}

TEST(OptimizerPass, takes_the_direction_of_a_plateau_from_its_metric) {
  Wanted wanted;
  wanted.config.schedule.kind = "reduce_on_plateau";
  EXPECT_EQ(wanted.first().schedule.mode, "min");
  wanted.config.schedule.metric = "accuracy";
  EXPECT_EQ(wanted.first().schedule.mode, "max");
  wanted.config.schedule.mode = "min";
  EXPECT_EQ(wanted.first().schedule.mode, "min");
  wanted.config.schedule.metric = "top2";
  EXPECT_THROW(wanted.plan(), ConfigError);  // not measured
}

}  // namespace
}  // namespace tanren
