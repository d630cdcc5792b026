#include "tanren/plan/planner.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

struct OfGraph {
  RunConfig config;
  ModelProfile profile;

  OfGraph() {
    config.run.steps = 100;
    config.run.device = "cpu";
    profile.train_samples = 100;
    profile.metrics = {"accuracy"};
    profile.parameters = {{"stem.weight", {10, 10}, true}, {"head.weight", {10, 5}, true}};
    profile.num_parameters = profile.num_trainable = 150;
    profile.couples_samples = true;
    profile.graph = GraphFacts{.precision = "fp32",
                               .device = "cpu",
                               .torch = "2.11.0",
                               .instructions = "avx2",
                               .sizes = "batch at least 2",
                               .draws = "aten::native_dropout",
                               .checksum = "0123456789abcdef",
                               .frozen = {"frozen.weight"},
                               .changed = {"stem.norm.running_mean"}};
  }
  Plan plan() const { return make_plan(config, {}, profile); }
  std::string refusal() const {
    return testing::error_of<ConfigError>([&] { plan(); });
  }
};

TEST(GraphPass, refuses_what_a_graph_cannot_obey) {
  const auto refusal = [](const auto& change) {
    OfGraph of;
    change(of);
    return of.refusal();
  };
  TANREN_EXPECT_CONTAINS(refusal([](OfGraph& of) { of.config.memory.recompute = {"*"}; }),
                         "torch.utils.checkpoint");
  TANREN_EXPECT_CONTAINS(refusal([](OfGraph& of) { of.config.memory.offload = {"*"}; }),
                         "memory.offload");
  TANREN_EXPECT_CONTAINS(
      refusal([](OfGraph& of) { of.config.model.memory_format = "channels_last"; }),
      "memory_format");
  TANREN_EXPECT_CONTAINS(refusal([](OfGraph& of) {
                           of.config.average.kind = "swa";
                           of.config.average.buffers = "estimate";
                         }),
                         "average.buffers");
  TANREN_EXPECT_CONTAINS(refusal([](OfGraph& of) { of.config.parallel.buffers = "synchronised"; }),
                         "parallel.buffers");
  TANREN_EXPECT_CONTAINS(refusal([](OfGraph& of) { of.config.precision.mode = "bf16"; }),
                         "set precision.mode = \"fp32\"");
  TANREN_EXPECT_CONTAINS(refusal([](OfGraph& of) { of.config.precision.level = "O2"; }),
                         "level O2");
  TANREN_EXPECT_CONTAINS(refusal([](OfGraph& of) { of.profile.graph->device = "cuda"; }),
                         "set run.device = \"cuda\"");
}

TEST(GraphPass, refuses_a_term_of_weight_0_whoever_gave_it) {
  OfGraph of;
  of.profile.objectives = {{.name = "loss", .terms = {"near", "far"}, .weights = {1, 0.5}}};
  EXPECT_NO_THROW(of.plan());
  of.config.objectives["loss"].weights["far"] = 0;
  TANREN_EXPECT_CONTAINS(of.refusal(), "objectives.loss.weights gives far the weight 0");
  of.config.objectives.clear();
  of.profile.objectives[0].weights[0] = 0;
  TANREN_EXPECT_CONTAINS(of.refusal(), "gives near the weight 0");
  of.config.objectives["loss"].weights["near"] = 1;
  EXPECT_NO_THROW(of.plan());
}

TEST(GraphPass, refuses_a_freezing_that_the_graph_would_not_see) {
  OfGraph of;
  of.config.model.freeze = {"stem.*"};
  of.profile.parameters[0].trained = false;
  of.profile.still = {"stem"};
  TANREN_EXPECT_CONTAINS(of.refusal(), "model.freeze holds all of stem, whose dropout would go on");
  of.profile.graph->draws = "";
  TANREN_EXPECT_CONTAINS(of.refusal(), "freeze=[\"stem.*\"]");
  of.profile.graph->changed.clear();
  EXPECT_NO_THROW(of.plan());
  of.config.model.unfreeze = {{{"frozen.*"}, 5}};
  TANREN_EXPECT_CONTAINS(of.refusal(), "exported without gradients");
}

TEST(GraphPass, plans_the_graphs_precision_and_averages_its_buffers) {
  OfGraph of;
  of.profile.graph->precision = "bf16";
  of.config.average.kind = "swa";
  const Plan plan = of.plan();
  EXPECT_EQ(plan.precision.mode, Mode::bf16);
  EXPECT_EQ(plan.average.buffers, AverageBuffers::average);
  std::string line;
  for (const PlanLine& own : plan.lines) {
    if (own.key == "graph") line = own.value + "|" + own.reason;
  }
  TANREN_EXPECT_CONTAINS(line, "0123456789abcdef|compiled by torch 2.11.0 for avx2");
  TANREN_EXPECT_CONTAINS(line, "aten::native_dropout");
  TANREN_EXPECT_CONTAINS(line, "600 B");
}

}  // namespace
}  // namespace tanren
