#include "tanren/train/freezing.h"

#include "tanren/base/error.h"
#include "tanren/base/random.h"
#include "tanren/base/testing.h"
#include "tanren/config/kinds.h"
#include "tanren/model/layer_table.h"
#include "tanren/model/registry.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

namespace tanren {
namespace {

ModelOptions convnet_options() {
  ModelOptions options;
  options.kind = "convnet";
  options.channels = {4, 8};
  options.norm = "batch";
  return options;
}

Task convnet() {
  at::manual_seed(1);
  return ModelRegistry().make(convnet_options(), DataInfo{{1, 8, 8}, 3});
}

ModelOptions frozen(std::vector<std::string> freeze, std::vector<UnfreezeOptions> unfreeze = {}) {
  ModelOptions options;
  options.freeze = std::move(freeze);
  options.unfreeze = std::move(unfreeze);
  return options;
}

std::string refusal(const ModelOptions& options) {
  const Task task = convnet();
  return testing::error_of<ConfigError>([&] { freeze(*task.module, options); });
}

bool starts_with(const std::string& name, const std::string& start) {
  return name.rfind(start, 0) == 0;
}

TEST(Freezing, patterns_that_fit_nothing_free_nothing_or_leave_nothing_are_refused) {
  TANREN_EXPECT_CONTAINS(refusal(frozen({"stm.*"})), "freeze \"stm.*\" matches no parameter");
  TANREN_EXPECT_CONTAINS(refusal(frozen({"stem.*"}, {{{"stages.9.*"}, 5}})),
                         "unfreeze \"stages.9.*\" matches no parameter");
  TANREN_EXPECT_CONTAINS(refusal(frozen({"stem.*"}, {{{"head.*"}, 5}})),
                         "unfreeze head.* at step 5: model.freeze holds none");
  TANREN_EXPECT_CONTAINS(refusal(frozen({"*"})), "no parameter to train at step 0");
  TANREN_EXPECT_CONTAINS(refusal(frozen({"*"}, {{{"head.*"}, 1}})), "no parameter to train");
}

TEST(Freezing, a_frozen_part_stands_still_and_the_rest_trains) {
  const Task task = convnet();
  EXPECT_EQ(freeze(*task.module, frozen({"stem.*", "stages.0.*"})), 9);
  for (const auto& item : task.module->named_parameters()) {
    const bool is_frozen = starts_with(item.key(), "stem") || starts_with(item.key(), "stages.0");
    EXPECT_EQ(item.value().requires_grad(), !is_frozen) << item.key();
  }
  for (const auto& item : task.module->named_modules()) {
    const bool is_frozen = starts_with(item.key(), "stem") || starts_with(item.key(), "stages.0");
    EXPECT_EQ(item.value()->is_training(), !is_frozen) << item.key();
  }
  EXPECT_EQ(still_modules(*task.module), (std::vector<std::string>{"stem", "stages.0"}));
}

TEST(Freezing, everything_but_a_head_is_frozen_by_an_exception_at_step_0) {
  const Task task = convnet();
  freeze(*task.module, frozen({"*"}, {{{"head.*"}, 0}}));
  for (const auto& item : task.module->named_parameters()) {
    EXPECT_EQ(item.value().requires_grad(), starts_with(item.key(), "head")) << item.key();
  }
}

TEST(Freezing, a_parameter_with_two_names_is_frozen_and_excepted_by_either) {
  const auto patterns = [](const ModelOptions& options) {
    const auto module = std::make_shared<torch::nn::Module>();
    const at::Tensor own = module->register_parameter("own", at::ones({2}));
    const at::Tensor tied = module->register_parameter("first", at::ones({2}));
    module->register_parameter("second", tied);
    const int64_t count = freeze(*module, options);
    EXPECT_TRUE(own.requires_grad());
    EXPECT_EQ(count, tied.requires_grad() ? 0 : 1);
    return tied.requires_grad();
  };
  EXPECT_FALSE(patterns(frozen({"second"})));
  EXPECT_TRUE(patterns(frozen({"second"}, {{{"first"}, 0}})));
  EXPECT_TRUE(patterns(frozen({"*"}, {{{"second", "own"}, 0}})));
  EXPECT_FALSE(patterns(frozen({"second"}, {{{"first"}, 5}})));
}

TEST(Freezing, an_own_norm_in_eval_mode_stays_as_its_author_left_it) {
  const Task task = convnet();
  const auto modules = task.module->named_modules();
  modules["stages.1.norm1"]->eval();
  freeze(*task.module, frozen({"stem.*"}));
  EXPECT_FALSE(modules["stages.1.norm1"]->is_training());
  EXPECT_TRUE(modules["stages.1.norm2"]->is_training());
}

// A run at step `step`: one norm of the stages unfreezes at 5, the rest of the stages at 3.
struct UnfreezingRun {
  RunState run;
  Plan plan;

  UnfreezingRun() {
    run.task = convnet();
    freeze(*run.task.module, frozen({"stem.*", "stages.*"}));
    std::vector<std::string> first, second;
    for (const auto& item : run.task.module->named_parameters()) {
      if (!starts_with(item.key(), "stages")) continue;
      (starts_with(item.key(), "stages.1.norm1") ? second : first).push_back(item.key());
    }
    plan.freeze.unfreezes = {{3, first}, {5, second}};
    plan.objectives.front().optimizer = with_defaults({});
    run.phases = make_phases(run.task, plan);
  }
  Objective& objective() { return run.phases.front().objectives.front(); }
  bool trains(const std::string& module) const {
    return run.task.module->named_modules()[module]->is_training();
  }
};

TEST(Freezing, an_unfreeze_wakes_modules_and_leaves_what_is_still_frozen_inside_them) {
  UnfreezingRun unfreezing;
  unfreeze(unfreezing.run, unfreezing.plan.freeze);
  EXPECT_FALSE(unfreezing.trains("stages"));
  EXPECT_EQ(unfreezing.objective().parameters.size(), 2u);
  unfreezing.objective().step = 3;
  unfreeze(unfreezing.run, unfreezing.plan.freeze);
  EXPECT_TRUE(unfreezing.trains("stages.1"));
  EXPECT_TRUE(unfreezing.trains("stages.1.norm2"));
  EXPECT_FALSE(unfreezing.trains("stages.1.norm1"));
  EXPECT_FALSE(unfreezing.trains("stem"));
  unfreezing.objective().step = 5;
  unfreeze(unfreezing.run, unfreezing.plan.freeze);
  EXPECT_TRUE(unfreezing.trains("stages.1.norm1"));
  EXPECT_FALSE(unfreezing.trains("stem"));
}

TEST(Freezing, a_frozen_parameter_has_no_gradient_bucket_or_state_and_what_was_there_is_kept) {
  UnfreezingRun unfreezing;
  auto& objective = unfreezing.objective();
  const auto bucket = [&] { return objective.gradients.flat().front().numel(); };
  EXPECT_EQ(bucket(), 8 * 3 + 3);
  EXPECT_EQ(objective.optimizer->state().tensors.size(), 6u);
  objective.optimizer->state().tensors.at("head.bias.exp_avg").fill_(7);
  const auto stem = unfreezing.run.task.module->named_parameters()["stem.conv.weight"];
  objective.step = 3;
  unfreeze(unfreezing.run, unfreezing.plan.freeze);
  EXPECT_FALSE(stem.mutable_grad().defined());
  EXPECT_GT(bucket(), 500);
  const State state = objective.optimizer->state();
  EXPECT_EQ(state.tensors.size(), 3 * objective.parameters.size());
  EXPECT_EQ(state.tensors.at("head.bias.exp_avg")[0].item<float>(), 7);
  EXPECT_EQ(state.tensors.at("stages.0.conv1.weight.exp_avg").abs().max().item<float>(), 0);
  EXPECT_FALSE(state.tensors.contains("stem.conv.weight.exp_avg"));
  // The same step again, as after a skipped update, changes nothing.
  const auto* before = objective.optimizer.get();
  unfreeze(unfreezing.run, unfreezing.plan.freeze);
  EXPECT_EQ(objective.optimizer.get(), before);
}

TEST(Freezing, vgg19_with_an_appended_linear_trains_1001_of_143668241_parameters) {
  ModelOptions options = frozen({"features.*", "classifier.*"});
  options.kind = "vgg";
  options.size = "vgg19";
  options.append_head = 1;
  options.loss = "bce";
  Batch image;
  image.ids = at::arange(1);
  image.fields.set("inputs", at::empty({1, 3, 224, 224}, at::kMeta));
  image.fields.set("labels", at::empty({1}, at::TensorOptions(at::kLong).device(at::kMeta)));
  std::vector<std::string> names;
  const LayerTable table = layer_table(
      [&] {
        Task task = ModelRegistry().make(options, DataInfo{{3, 224, 224}, 2});
        freeze(*task.module, options);
        names = task.module->named_parameters().keys();
        return task;
      },
      image);
  EXPECT_EQ(table.mismatch, "");
  EXPECT_EQ(table.total().parameters, 143668241);
  EXPECT_EQ(table.total().trainable, 1001);
  EXPECT_EQ(names.front(), "features.0.weight");
  EXPECT_EQ(names[names.size() - 3], "classifier.6.bias");
  EXPECT_EQ(names[names.size() - 2], "appended.weight");
  EXPECT_EQ(names.back(), "appended.bias");
}

// Whether two training forwards with different seeds differ; only the parameters `free` are
// trained.
bool draws(const ModelOptions& options, const DataInfo& info, const Batch& batch,
           const std::string& free) {
  at::manual_seed(1);
  Task task = ModelRegistry().make(options, info);
  freeze(*task.module, frozen({"*"}, {{{free}, 0}}));
  const auto loss = [&](uint64_t seed) {
    const RandomScope random(seed, 0, batch.ids);
    return task.phases.front().forward(batch).front().sum.item<double>();
  };
  return loss(1) != loss(2);
}

Batch batch_of(at::Tensor inputs, at::Tensor labels) {
  Batch batch;
  batch.ids = at::arange(inputs.size(0));
  batch.fields.set("inputs", std::move(inputs));
  batch.fields.set("labels", std::move(labels));
  return batch;
}

TEST(Freezing, dropout_inside_what_is_frozen_does_not_draw) {
  ModelOptions mlp;
  mlp.kind = "mlp";
  mlp.hidden = {16, 16};
  mlp.dropout = 0.5;
  const auto rows = batch_of(at::randn({4, 6}), at::arange(4) % 3);
  EXPECT_FALSE(draws(mlp, DataInfo{{6}, 3}, rows, "head.*"));
  EXPECT_TRUE(draws(mlp, DataInfo{{6}, 3}, rows, "hidden.1.*"));

  ModelOptions gpt2;
  gpt2.kind = "gpt2";
  gpt2.num_layers = 2;
  gpt2.num_heads = 2;
  gpt2.hidden_size = 8;
  gpt2.context_length = 8;
  gpt2.vocab_size = 11;
  gpt2.dropout = 0.5;
  const auto tokens =
      batch_of(at::arange(16).reshape({2, 8}) % 11, (at::arange(16).reshape({2, 8}) + 1) % 11);
  DataInfo text{{8}, 11};
  text.vocab_size = 11;
  EXPECT_FALSE(draws(gpt2, text, tokens, "transformer.ln_f.*"));
  EXPECT_TRUE(draws(gpt2, text, tokens, "transformer.h.1.*"));
}

}  // namespace
}  // namespace tanren
