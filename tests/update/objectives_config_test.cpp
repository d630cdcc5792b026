// Settings of single objectives: their own turns, weights, optimizer, schedule and clip.
#include "tanren/base/error.h"
#include "tanren/base/log.h"
#include "tanren/base/testing.h"
#include "tanren/config/identity.h"
#include "tanren/config/read_config.h"
#include "tanren/config/write_config.h"
#include "tanren/train/judgement.h"
#include "tests/support/gan.h"
#include "tests/support/rank_run.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <functional>
#include <numbers>
#include <string>
#include <tuple>
#include <vector>

namespace tanren::testing {
namespace {

constexpr int kUpdates = 12, kTurns = 3;  // the generator is in turn at every third batch

// The GAN's config, parsed as from a file, with the settings `sets`.
RunConfig configured(const std::vector<std::string>& sets) {
  auto config = gan_config();
  config.run.steps = kUpdates;
  config.evaluate.metrics.clear();
  return parse_config(to_toml(config), "gan.toml", "/", sets, {"gan"});
}

RunConfig config_of_both() {
  return configured(
      {"optimizer.learning_rate=0.01", "optimizer.beta1=0.5", "schedule.kind=cosine",
       "clip.norm=0.05", "objectives.critic.weights={fake = 0.25}", "objectives.generator.every=3",
       "objectives.generator.weights.score=-2", "objectives.generator.optimizer.kind=sgd",
       "objectives.generator.optimizer.momentum=0.9",
       "objectives.generator.optimizer.learning_rate=0.05",
       "objectives.generator.schedule.kind=linear", "objectives.generator.schedule.warmup_steps=2",
       "objectives.generator.clip.norm=0", "objectives.generator.clip.value=0.002"});
}

struct GanForm {
  const char* name;
  std::function<Task()> make;
  bool shares_forward;
};

std::vector<GanForm> gan_forms() {
  return {{"one forward", [] { return one_forward_gan(); }, true},
          {"two phases", [] { return two_phase_gan(); }, false}};
}

// The same training in plain torch, with each update's rates, clips and weights written out.
// Critic: Adam, cosine over 12 updates, clipped by norm. Generator: SGD with momentum, two updates
// of warm-up and a linear decay over its 4 updates, clipped by value.
at::Tensor trained_by_hand(const RunConfig& config, bool shares_forward) {
  TinyRun run(config, nullptr, one_forward_gan());  // for its weights and batches
  auto& net = dynamic_cast<GanNet&>(*run.state.task.module);
  std::vector<at::Tensor> critic, generator;
  for (const auto& item : net.named_parameters()) {
    (item.key().starts_with("critic") ? critic : generator).push_back(item.value());
  }
  torch::optim::AdamOptions of_critic(0.01);
  torch::optim::Adam critic_adam(critic, of_critic.betas({0.5, 0.999}));
  torch::optim::SGDOptions of_generator(0.05);
  torch::optim::SGD generator_sgd(generator, of_generator.momentum(0.9).weight_decay(0.01));
  const auto set = [](const std::vector<at::Tensor>& parameters, const at::Tensor& loss) {
    const auto gradients = torch::autograd::grad({loss}, parameters, {}, /*retain_graph=*/true);
    for (size_t i = 0; i < parameters.size(); ++i) {
      at::Tensor(parameters[i]).mutable_grad() = gradients[i];
    }
  };
  const std::vector<double> rates = {0.05 * 1 / 2, 0.05, 0.05, 0.05 * 0.5};
  for (int i = 0; i < kUpdates; ++i) {
    const Batch batch = run.loader->next().local;
    const bool in_turn = (i + 1) % kTurns == 0;
    const at::Tensor made = net.criticise(net.generate(batch));
    set(critic,
        at::relu(1 - net.criticise(net.real(batch))).mean() + 0.25 * at::relu(1 + made).mean());
    if (shares_forward && in_turn) set(generator, -2 * made.mean());
    torch::nn::utils::clip_grad_norm_(critic, 0.05);
    critic_adam.param_groups()[0].options().set_lr(0.01 * 0.5 *
                                                   (1 + std::cos(std::numbers::pi * i / kUpdates)));
    critic_adam.step();
    if (!in_turn) continue;
    if (!shares_forward) set(generator, -2 * net.criticise(net.generate(batch)).mean());
    torch::nn::utils::clip_grad_value_(generator, 0.002);
    generator_sgd.param_groups()[0].options().set_lr(rates.at(static_cast<size_t>(i / kTurns)));
    generator_sgd.step();
  }
  return run.weights();
}

TEST(ObjectivesConfig, trains_each_as_it_says) {
  const RunConfig config = config_of_both();
  for (const auto& [name, make, shares_forward] : gan_forms()) {
    TinyRun run(config, nullptr, make());
    const auto reports = run.steps(kUpdates);
    EXPECT_LT(relative(run.weights(), trained_by_hand(config, shares_forward)), 1e-10) << name;
    const Objective& generator = run.state.phases.back().objectives.back();
    EXPECT_EQ(generator.step, kUpdates / kTurns) << name;
    for (int i = 0; i < kUpdates; ++i) {
      EXPECT_EQ(reports[static_cast<size_t>(i)].objectives.size(), (i + 1) % kTurns == 0 ? 2u : 1u);
    }
    EXPECT_EQ(reports[2].objectives[1].learning_rate, 0.025) << name;
    // Every part of the config has an effect.
    for (const char* key : {"critic.weights", "generator.weights", "generator.every",
                            "generator.clip.value", "generator.optimizer.learning_rate"}) {
      RunConfig other = config;
      take_keys(other, configured({}), {std::string("objectives.") + key});
      TinyRun changed(other, nullptr, make());
      changed.steps(kUpdates);
      EXPECT_GT(relative(changed.weights(), run.weights()), 1e-6) << name << ": " << key;
    }
  }
}

TEST(ObjectivesConfig, is_the_same_on_ranks_that_share_the_update) {
  const RunConfig config = config_of_both();
  for (const auto& [name, make, shares_forward] : gan_forms()) {
    TinyRun whole(config, nullptr, make());
    whole.steps(kUpdates);
    for (const auto& [ranks, zero] : {std::pair{2, 0}, {3, 1}}) {
      auto shared = config;
      shared.parallel.zero = zero;
      shared.batch.microbatch = 2;
      const auto data = open_dataset(config.data.train, "data.train");
      on_ranks(ranks, [&, make = make](Communicator& comm) {
        RankRun run(shared, *data, comm, make);
        for (int i = 0; i < kUpdates; ++i) run.step();
        EXPECT_LT(relative(run.weights(), whole.weights()), 1e-10) << zero;
      });
    }
  }
}

TEST(ObjectivesConfig, resumes_bitwise_from_its_written_config) {
  const RunConfig config = config_of_both();
  const RunConfig written = parse_config(to_toml(config), "config.toml", "/", {}, {"gan"});
  for (const auto& [name, make, shares_forward] : gan_forms()) {
    TinyRun whole(config, nullptr, make());
    TinyRun current(config, nullptr, make());
    for (int attempt = 0; attempt < kUpdates; ++attempt) {
      whole.step();
      TinyRun resumed(written, nullptr, make());
      resumed.state.load(resumed.parts.device, {current.state.model_tensors(), {}},
                         current.state.optimizer_state(),
                         current.state.run_state(current.parts.device),
                         current.state.average_state());
      resumed.use_loader(0, 1);
      resumed.step();
      EXPECT_TRUE(at::equal(resumed.weights(), whole.weights())) << name << " " << attempt;
      current.step();
    }
  }
}

// --- weights of an objective that takes all terms

// One objective that uses the critic's terms but does not list them.
Task unlisted(double factor_of_fake) {
  Task task = one_forward_gan();
  PhaseSpec& phase = task.phases.front();
  phase.objectives = {{.name = "critic", .terms = {}, .parameters = {"critic*"}}};
  phase.forward = [=, inner = phase.forward](const Batch& batch) -> Terms {
    Terms terms = inner(batch);
    terms[1].sum = terms[1].sum * factor_of_fake;
    return {terms[0], terms[1]};
  };
  return task;
}

TEST(ObjectivesConfig, weighs_terms_that_the_task_does_not_list) {
  TinyRun plain(configured({}), nullptr, unlisted(0.25));
  TinyRun weighed(configured({"objectives.critic.weights.fake=0.25"}), nullptr, unlisted(1));
  const auto expected = plain.steps(5), reports = weighed.steps(5);
  EXPECT_LT(relative(weighed.weights(), plain.weights()), 1e-12);
  EXPECT_NEAR(reports[4].objectives[0].loss, expected[4].objectives[0].loss, 1e-12);
  const auto line = error_of<ConfigError>([] {
    TinyRun run(configured({"objectives.critic.weights.fkae=0.25"}), nullptr, unlisted(1));
    run.step();
  });
  TANREN_EXPECT_CONTAINS(line, "objective critic wants term \"fkae\"; forward returned real, fake");
}

TEST(ObjectivesConfig, leaves_out_a_term_of_weight_0) {
  TinyRun run(configured({"objectives.critic.weights.fake=0"}), nullptr, unlisted(1));
  const StepReport report = run.step();
  ASSERT_EQ(report.objectives[0].terms.size(), 1u);
  EXPECT_EQ(report.objectives[0].terms[0].first, "real");
  EXPECT_EQ(report.objectives[0].loss, report.objectives[0].terms[0].second);
}

TEST(ObjectivesConfig, asks_no_count_of_a_term_that_is_only_told) {
  Task task = one_forward_gan();
  PhaseSpec& phase = task.phases.front();
  phase.forward = [inner = phase.forward](const Batch& batch) {
    Terms terms = inner(batch);
    terms.push_back({"told", terms.back().sum * 2, "patches"});  // no data counts patches
    return terms;
  };
  TinyRun run(gan_config(), nullptr, task), plain(gan_config(), nullptr, one_forward_gan());
  const StepReport report = run.step();
  plain.step();
  EXPECT_TRUE(at::equal(run.weights(), plain.weights()));
  for (const ObjectiveReport& objective : report.objectives) {
    for (const auto& [name, value] : objective.terms) EXPECT_NE(name, "told");
  }
}

// --- evaluations

TEST(ObjectivesConfig, lets_evaluations_reduce_the_rate_of_one_alone) {
  RunConfig config = configured({"evaluate.every=1", "objectives.generator.every=1"});
  config.objectives["generator"].schedule.kind = "reduce_on_plateau";
  config.objectives["generator"].schedule.patience = 0;
  TinyRun run(config, nullptr, two_phase_gan());
  EXPECT_TRUE(evaluations_decide(run.parts.plan));
  std::vector<std::string> told;
  const auto before = set_log_sink([&](std::string_view line) { told.emplace_back(line); });
  for (int64_t step = 1; step <= 3; ++step) {
    run.step();
    EvaluationReport report{.step = step, .values = {{"loss", 1.0}}};
    judge(run.state, run.parts.plan, report, /*tells=*/true);
  }
  set_log_sink(before);
  EXPECT_EQ(run.objective().plateau.scale(), 1);
  EXPECT_NEAR(run.state.phases[1].objectives[0].plateau.scale(), 0.01, 1e-15);
  ASSERT_EQ(told.size(), 2u);
  TANREN_EXPECT_CONTAINS(told[0], "from update 3 of generator on");
}

// --- bad input

TEST(ObjectivesConfig, that_does_not_fit_the_task_is_refused_by_the_plan) {
  const auto refused = [](const std::string& set) {
    return error_of<ConfigError>([&] { TinyRun(configured({set}), nullptr, two_phase_gan()); });
  };
  TANREN_EXPECT_CONTAINS(refused("objectives.genrator.every=2"),
                         "objectives.genrator names no objective of this task; name one of critic, "
                         "generator (nearest: generator)");
  TANREN_EXPECT_CONTAINS(refused("objectives.critic.every=2"), "objectives.critic.every is 2");
  TANREN_EXPECT_CONTAINS(refused("objectives.generator.weights.real=2"),
                         "which is none of this objective; name one of score");
  TANREN_EXPECT_CONTAINS(
      refused("objectives.generator.optimizer.groups=[{parameters = [\"maek*\"], weight_decay = "
              "0}]"),
      "groups: the pattern 'maek*' matches no parameter");
}

TEST(ObjectivesConfig, takes_the_runs_patterns_of_the_whole_model_and_its_own_of_its_parameters) {
  const std::string groups = "optimizer.groups=[{parameters = [\"critic*\"], weight_decay = 0}]";
  EXPECT_NO_THROW(TinyRun(configured({groups}), nullptr, two_phase_gan()));
  EXPECT_THROW(TinyRun(configured({"objectives.generator." + groups}), nullptr, two_phase_gan()),
               ConfigError);
}

TEST(ObjectivesConfig, counts_its_own_layers_among_its_own_parameters) {
  // The generator has a single group of layers. It is the last one too, so it has the full learning
  // rate.
  const auto weights_of = [](const std::vector<std::string>& sets) {
    TinyRun run(configured(sets), nullptr, one_forward_gan());
    run.steps(2);
    return run.weights();
  };
  const std::string decay = "optimizer.layer_decay=0.5",
                    layers = "optimizer.layers=[\"generator*\"]";
  EXPECT_LT(
      relative(weights_of({"objectives.generator." + decay, "objectives.generator." + layers}),
               weights_of({})),
      1e-12);
  EXPECT_GT(relative(weights_of({decay, "optimizer.layers=[\"generator*\", \"critic*\"]"}),
                     weights_of({})),
            1e-4);
}

TEST(ObjectivesConfig, keeps_its_proportion_to_the_rate_of_averaging) {
  TinyRun run(configured({"average.kind=swa", "average.start=2", "average.learning_rate=0.1",
                          "optimizer.learning_rate=0.01",
                          "objectives.generator.optimizer.learning_rate=0.005"}),
              nullptr, one_forward_gan());
  const auto reports = run.steps(4);
  EXPECT_EQ(reports[1].objectives[1].learning_rate, 0.005);
  EXPECT_EQ(reports[3].objectives[0].learning_rate, 0.1);
  EXPECT_EQ(reports[3].objectives[1].learning_rate, 0.05);
}

// The plan knows the terms only if the task lists them. The first step knows all terms.
TEST(ObjectivesConfig, refuses_weights_that_train_nothing_or_name_no_term) {
  const auto refusal_of = [](const std::string& weight) {
    auto config = tiny_config("mlp");
    config.evaluate.metrics.clear();
    TinyRun run(parse_config(to_toml(config), "a.toml", "/", {weight}, {"mlp"}));
    try {
      run.steps(1);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  TANREN_EXPECT_CONTAINS(refusal_of("objectives.loss.weights.cross_entropy=0"),
                         "the weights of objective loss are all 0");
  TANREN_EXPECT_CONTAINS(refusal_of("objectives.loss.weights.cros_entropy=0"),
                         "objective loss wants term \"cros_entropy\"; forward returned "
                         "cross_entropy");
  EXPECT_EQ(refusal_of("objectives.loss.weights.cross_entropy=0.5"), "no error");
}

}  // namespace
}  // namespace tanren::testing
