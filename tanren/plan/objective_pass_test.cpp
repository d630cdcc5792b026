#include "tanren/base/error.h"
#include "tanren/plan/planner.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace tanren {
namespace {

// A critic of 220 parameters and a generator of 1000, which is updated at every fifth batch.
struct Gan {
  RunConfig config;
  Machine machine;
  ModelProfile profile;

  Gan() {
    config.run.steps = 100;
    config.optimizer.kind = "adam";
    profile.train_samples = 100;
    profile.metrics = {"accuracy"};
    profile.parameters = {{"critic.weight", {10, 20}}, {"make.weight", {1000}}, {"critic.b", {20}}};
    profile.num_parameters = profile.num_trainable = 1220;
    profile.objectives = {{.name = "critic",
                           .phase = "critic",
                           .terms = {"real", "fake"},
                           .parameters = {"critic.weight", "critic.b"}},
                          {.name = "generator",
                           .phase = "generator",
                           .every = 5,
                           .terms = {"score"},
                           .parameters = {"make.weight"}}};
  }
  // The generator's options, which begin as the run's.
  ObjectiveOptions& generator() {
    const auto [entry, is_new] = config.objectives.try_emplace("generator");
    ObjectiveOptions& own = entry->second;
    if (is_new) {
      own.optimizer = config.optimizer;
      own.schedule = config.schedule;
      own.clip = config.clip;
    }
    return own;
  }
  Plan plan() const { return make_plan(config, machine, profile); }
  // The line of `key` as "value|source|reason".
  std::string line(const std::string& key) const {
    for (const auto& line : plan().lines) {
      if (line.key != key) continue;
      return line.value + (line.source == Source::asked ? "|asked|" : "|default|") + line.reason;
    }
    return "no line " + key;
  }
  std::string refusal() const {
    try {
      plan();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  }
};

void expect_told(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "in: " << text << "\nmissing: " << part;
}

TEST(ObjectivePass, refuses_weights_that_would_train_nothing) {
  Gan gan;
  gan.generator().weights = {{"score", 0}};
  expect_told(gan.refusal(), "[plan] objectives.generator.weights are all 0, so that nothing");
  gan.generator().weights = {{"score", -1}};
  EXPECT_EQ(gan.refusal(), "no error");
}

TEST(ObjectivePass, has_one_objective_where_nothing_is_known_of_the_task) {
  Gan gan;
  gan.profile.objectives.clear();
  gan.config.clip.norm = 2;
  const Plan plan = gan.plan();
  ASSERT_EQ(plan.objectives.size(), 1u);
  const ObjectivePlan& only = plan.objectives.front();
  EXPECT_EQ(only.name, "loss");
  EXPECT_EQ(only.phase, "train");
  EXPECT_EQ(only.every, 1);
  EXPECT_EQ(only.total_steps, 100);
  EXPECT_EQ(only.clip.norm, 2);
  for (const auto& line : plan.lines) EXPECT_FALSE(line.key.starts_with("objectives")) << line.key;
}

TEST(ObjectivePass, gives_each_objective_the_runs_sections_or_its_own) {
  Gan gan;
  gan.config.schedule.kind = "cosine";
  gan.config.clip.norm = 1;
  Plan plan = gan.plan();
  ASSERT_EQ(plan.objectives.size(), 2u);
  EXPECT_EQ(plan.objectives[1].name, "generator");
  EXPECT_EQ(plan.objectives[1].phase, "generator");
  EXPECT_EQ(plan.objectives[1].every, 5);
  EXPECT_EQ(plan.objectives[1].optimizer.kind, "adam");
  EXPECT_EQ(plan.objectives[1].schedule.kind, "cosine");
  EXPECT_EQ(plan.objectives[1].clip.norm, 1);
  ObjectiveOptions& own = gan.generator();
  own.every = 4;
  own.weights = {{"score", -0.5}};
  own.optimizer.kind = "muon";
  own.schedule.kind = "linear";
  own.clip.norm = 3;
  plan = gan.plan();
  EXPECT_EQ(plan.objectives[0].optimizer.kind, "adam");
  EXPECT_EQ(plan.objectives[0].every, 1);
  EXPECT_EQ(plan.objectives[0].clip.norm, 1);
  EXPECT_EQ(plan.objectives[1].every, 4);
  EXPECT_EQ(plan.objectives[1].weights.at("score"), -0.5);
  EXPECT_EQ(plan.objectives[1].optimizer.momentum, 0.95) << "muon's own default";
  EXPECT_EQ(plan.objectives[1].schedule.kind, "linear");
  EXPECT_EQ(plan.objectives[1].clip.norm, 3);
}

TEST(ObjectivePass, counts_the_updates_of_each_objective) {
  Gan gan;
  gan.config.run.steps = 103;
  const Plan plan = gan.plan();
  EXPECT_EQ(plan.objectives[0].total_steps, 103);
  EXPECT_EQ(plan.objectives[1].total_steps, 20);
  gan.config.schedule.warmup_steps = 30;
  EXPECT_EQ(gan.line("warmup_steps"), "no line warmup_steps");
  EXPECT_EQ(gan.line("objectives.generator.schedule.warmup_steps"),
            "30|default|the run ends before its warm-up does, after 20 of its updates");
  gan.config.run.steps = 4;
  EXPECT_EQ(gan.line("objectives.generator.every"),
            "5|asked|the run ends before its first turn: it is never trained");
}

TEST(ObjectivePass, tells_each_further_objective_in_one_line) {
  Gan gan;
  EXPECT_EQ(gan.line("optimizer"),
            "adam|default|state: exp_avg, exp_avg_sq; 8.04 bytes per trained parameter, 1.7 KiB");
  EXPECT_EQ(gan.line("objectives.generator"),
            "adam|default|learning rate 0.001, every 5 batches, 20 updates; "
            "state: exp_avg, exp_avg_sq; 8 bytes per trained parameter, 7.8 KiB");
  EXPECT_EQ(gan.line("objectives.critic"), "no line objectives.critic");
  ObjectiveOptions& own = gan.generator();
  own.every = 1;
  own.optimizer.kind = "sgd";
  own.optimizer.learning_rate = 0.1;
  own.weights = {{"score", -0.5}};
  gan.config.asked = {"objectives.generator.every", "objectives.generator.optimizer.kind"};
  EXPECT_EQ(gan.line("objectives.generator"),
            "sgd|asked|learning rate 0.1, every batch, 100 updates; state: "
            "none; 0 bytes per trained parameter, 0 B");
  EXPECT_EQ(gan.line("objectives.generator.weights"),
            "score × -0.5|asked|in its loss, in place of the task's");
}

TEST(ObjectivePass, refuses_what_does_not_fit_the_task_and_names_what_does) {
  const auto refused = [](const std::function<void(Gan&)>& change) {
    Gan gan;
    change(gan);
    return gan.refusal();
  };
  expect_told(
      refused([](Gan& gan) { gan.config.objectives["genrator"]; }),
      "[plan] objectives.genrator names no objective of this task; name one of critic, generator "
      "(nearest: generator)");
  expect_told(refused([](Gan& gan) {
                gan.profile.objectives.clear();
                gan.generator();
              }),
              "objectives.generator names no objective of this task; name one of loss");
  expect_told(refused([](Gan& gan) { gan.config.objectives["critic"].every = 2; }),
              "[plan] objectives.critic.every is 2, and critic is the first objective of its task");
  EXPECT_EQ(refused([](Gan& gan) { gan.config.objectives["critic"].every = 1; }), "no error");
  expect_told(refused([](Gan& gan) { gan.generator().every = 0; }),
              "[plan] objectives.generator.every is 0; it must be at least 1");
  expect_told(refused([](Gan& gan) {
                gan.generator().weights = {{"scores", 2}};
              }),
              "[plan] objectives.generator.weights has the term \"scores\", which is none of this "
              "objective; name one of score (nearest: score)");
  // A task that lists no terms takes all that its forward returns, which the first step sees.
  EXPECT_EQ(refused([](Gan& gan) {
              gan.profile.objectives[1].terms.clear();
              gan.generator().weights = {{"scores", 2}};
            }),
            "no error");
}

TEST(ObjectivePass, checks_the_optimizer_and_schedule_of_each) {
  Gan gan;
  gan.generator().schedule.kind = "reduce_on_plateau";
  EXPECT_EQ(gan.plan().objectives[1].schedule.mode, "min");
  gan.generator().schedule.metric = "accuracy";
  EXPECT_EQ(gan.plan().objectives[1].schedule.mode, "max");
  gan.generator().schedule.metric = "top2";
  gan.config.asked = {"objectives.generator.schedule.metric"};
  expect_told(gan.refusal(), "[plan] objectives.generator.schedule.metric is \"top2\"");

  Gan ranks;
  ranks.machine.world_size = ranks.machine.local_ranks = 2;
  ranks.machine.launcher = "test";
  ranks.config.parallel.zero = 1;
  ranks.generator().optimizer.kind = "muon";
  ranks.config.asked = {"objectives.generator.optimizer.kind"};
  expect_told(ranks.refusal(),
              "and objectives.generator.optimizer.kind \"muon\" needs whole matrices");

  Gan layers;
  layers.generator().optimizer.layer_decay = 0.5;
  layers.generator().optimizer.layers = {"critic.*", "maek.*"};
  EXPECT_NE(layers.refusal(), "no error");
  layers.generator().optimizer.layers = {"critic.*"};  // not of its own parameters
  EXPECT_NE(layers.refusal(), "no error");
  layers.generator().optimizer.layers = {"make.*"};
  expect_told(layers.line("objectives.generator.layer_decay"), "0.5|default|1 layers: × 1 make.w");
  EXPECT_EQ(layers.line("layer_decay"), "no line layer_decay");
  // The run's layers, with a decay of its own, are those of the whole model.
  layers.config.optimizer.layers = layers.generator().optimizer.layers = {"critic.*", "make.*"};
  EXPECT_EQ(layers.refusal(), "no error");

  Gan groups;
  groups.generator().optimizer.groups = {{{"critic.*"}, 0.0, {}}};
  EXPECT_EQ(groups.refusal(),
            "[plan] objectives.generator.optimizer.groups: the pattern 'critic.*' matches "
            "parameters of other objectives alone; drop it");
  groups.config.optimizer.groups = groups.generator().optimizer.groups;  // the run's
  EXPECT_EQ(groups.refusal(), "no error");
}

}  // namespace
}  // namespace tanren
