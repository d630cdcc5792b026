#include "tanren/optimizer/optimizer.h"

#include "tanren/base/error.h"
#include "tanren/optimizer/fixture_test_util.h"

#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>

namespace tanren::testing {
namespace {

std::vector<OptimizerOptions> kinds() {
  OptimizerOptions dampened{.kind = "sgd", .momentum = 0.9};
  dampened.dampening = 0.2;
  OptimizerOptions grouped;
  grouped.groups = {{{"*.bias"}, 0.5, 0.0}};
  return {{}, grouped, {.kind = "sgd", .momentum = 0.9}, dampened, {.kind = "sgd"}};
}

State copy(const State& state) {
  State copied;
  copied.values = state.values;
  for (const auto& [name, tensor] : state.tensors) copied.tensors.set(name, tensor.clone());
  return copied;
}

std::string refusal(Optimizer& optimizer, const State& state) {
  try {
    optimizer.load(state);
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

TEST(OptimizerState, missing_extra_and_misfitting_tensors_are_refused_by_name) {
  const auto parameters = fixture_parameters();
  const auto optimizer = make_optimizer({}, parameters);
  const State whole = copy(optimizer->state());
  State missing;
  for (const auto& [name, tensor] : whole.tensors) {
    if (name != "conv.weight.exp_avg") missing.tensors.set(name, tensor);
  }
  EXPECT_NE(refusal(*optimizer, missing).find("'conv.weight.exp_avg'"), std::string::npos);
  State extra = whole;
  extra.tensors.set("other.weight.exp_avg", at::zeros({1}));
  EXPECT_NE(refusal(*optimizer, extra).find("'other.weight.exp_avg'"), std::string::npos);
  State shape = whole;
  shape.tensors.set("norm.weight.exp_avg_sq", at::zeros({7}));
  EXPECT_NE(refusal(*optimizer, shape).find("'norm.weight.exp_avg_sq' is Float [7]"),
            std::string::npos);
  State dtype = whole;
  dtype.tensors.set("norm.weight.exp_avg", at::zeros({6}, at::kDouble));
  EXPECT_NE(refusal(*optimizer, dtype).find("Double"), std::string::npos);
}

TEST(OptimizerState, a_refused_load_changes_nothing) {
  const auto parameters = fixture_parameters();
  const auto optimizer = make_optimizer({}, parameters);
  State bad = copy(optimizer->state());
  for (const auto& [name, tensor] : bad.tensors) at::Tensor(tensor).fill_(3);
  bad.tensors.set("norm.weight.step", at::zeros({2}));
  EXPECT_NE(refusal(*optimizer, bad), "");
  for (const auto& [name, tensor] : optimizer->state().tensors) {
    EXPECT_EQ(tensor.abs().sum().item<double>(), 0) << name;
  }
}

TEST(OptimizerState, has_torchs_names_from_the_build_on) {
  const auto parameters = fixture_parameters();
  const auto adamw = make_optimizer({}, parameters);
  const auto sgd = make_optimizer({.kind = "sgd", .momentum = 0.9}, parameters);
  const auto plain = make_optimizer({.kind = "sgd"}, parameters);
  EXPECT_EQ(adamw->state().tensors.size(), 12u);
  EXPECT_EQ(adamw->state().tensors.at("conv.weight.exp_avg").sizes(), parameters[2].tensor.sizes());
  EXPECT_TRUE(adamw->state().tensors.contains("conv.weight.exp_avg_sq"));
  EXPECT_EQ(adamw->state().tensors.at("conv.weight.step").dim(), 0);
  EXPECT_EQ(sgd->state().tensors.size(), 4u);
  EXPECT_TRUE(sgd->state().tensors.contains("norm.weight.momentum_buffer"));
  EXPECT_TRUE(plain->state().tensors.empty());
}

TEST(OptimizerState, counts_applied_steps_per_parameter) {
  const auto parameters = fixture_parameters();
  const auto optimizer = make_optimizer({}, parameters);
  const std::vector<uint8_t> active = {1, 0, 1, 1};
  set_gradients(parameters, 0);
  optimizer->step({.learning_rate = 0.1});
  optimizer->step({.learning_rate = 0.1, .active = &active});
  const State state = optimizer->state();
  EXPECT_EQ(state.tensors.at("linear.weight.step").item<double>(), 2);
  EXPECT_EQ(state.tensors.at("linear.bias.step").item<double>(), 1);
}

TEST(OptimizerState, load_goes_on_bitwise_where_state_was_taken) {
  for (const OptimizerOptions& options : kinds()) {
    for (const int64_t cut : {0, 1, 5}) {
      const auto whole = fixture_parameters();
      const auto optimizer = make_optimizer(options, whole);
      const auto resumed = fixture_parameters();
      auto late = make_optimizer(options, resumed);
      for (int64_t step = 0; step < 10; ++step) {
        if (step == cut) {
          for (size_t i = 0; i < whole.size(); ++i) {
            const at::NoGradGuard no_grad;
            resumed[i].tensor.copy_(whole[i].tensor);
          }
          late->load(copy(optimizer->state()));
        }
        set_gradients(whole, step);
        optimizer->step({.learning_rate = 0.02});
        if (step < cut) continue;
        set_gradients(resumed, step);
        late->step({.learning_rate = 0.02});
      }
      EXPECT_TRUE(all_equal(values_of(whole), values_of(resumed))) << options.kind << " " << cut;
    }
  }
}

TEST(OptimizerState, a_contiguous_state_loads_into_a_channels_last_parameter) {
  const at::Tensor weight = at::randn({4, 3, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
  const auto optimizer = make_optimizer({}, {{"w", weight.requires_grad_()}});
  State state;
  const at::Tensor moment = at::randn({4, 3, 3, 3});
  state.tensors.set("w.exp_avg", moment);
  state.tensors.set("w.exp_avg_sq", moment.square());
  state.tensors.set("w.step", at::full({}, 3.0f));
  optimizer->load(state);
  const at::Tensor loaded = optimizer->state().tensors.at("w.exp_avg");
  EXPECT_EQ(loaded.strides(), weight.strides());
  EXPECT_TRUE(at::equal(loaded, moment));
}

}  // namespace
}  // namespace tanren::testing
