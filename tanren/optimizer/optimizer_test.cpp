#include "tanren/optimizer/optimizer.h"

#include "tanren/base/error.h"
#include "tanren/optimizer/clip.h"
#include "tanren/optimizer/fixture_test_util.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace tanren::testing {
namespace {

struct Case {
  std::string name;
  OptimizerOptions options;
  double max_norm = 0;
};

// The C++ side of the cases in tests/fixtures/make/fixtures.py.
std::vector<Case> cases() {
  const auto sgd = [](double weight_decay, double momentum, double dampening, bool nesterov) {
    OptimizerOptions options{.kind = "sgd", .weight_decay = weight_decay};
    options.momentum = momentum;
    options.dampening = dampening;
    options.nesterov = nesterov;
    return options;
  };
  OptimizerOptions betas{.weight_decay = 0.1, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6};
  OptimizerOptions no_decay{.weight_decay = 0.1};
  no_decay.decay_norms_and_biases = false;
  OptimizerOptions groups;
  groups.groups = {{{"*.bias"}, 0.1, 0.0}, {{"conv*", "linear.b*"}, std::nullopt, 0.3}};
  return {
      {"adamw", {}},
      {"adamw_betas", betas},
      {"adamw_no_decay", no_decay},
      {"adamw_groups", groups},
      {"adamw_late", {}},
      {"adamw_clipped", {}, 10.0},
      {"sgd", sgd(0.05, 0, 0, false)},
      {"sgd_momentum", sgd(0.05, 0.9, 0, false)},
      {"sgd_dampening", sgd(0, 0.9, 0.3, false)},
      {"sgd_nesterov", sgd(0.01, 0.8, 0, true)},
      {"sgd_late", sgd(0.01, 0.9, 0.3, false)},
      {"sgd_clipped", sgd(0, 0.9, 0, false), 8.0},
  };
}

std::string message_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The largest difference, relative to the largest value of b.
double difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

TEST(Optimizer, an_unknown_kind_names_the_nearest) {
  const auto message = message_of([] { make_optimizer({.kind = "adamv"}, fixture_parameters()); });
  EXPECT_NE(message.find("did you mean 'adamw'"), std::string::npos) << message;
}

TEST(Optimizer, a_pattern_that_matches_nothing_is_named_with_the_nearest_parameter) {
  OptimizerOptions options;
  options.groups = {{{"*.bias", "linaer.weight*"}, 0.1, std::nullopt}};
  const auto message = message_of([&] { make_optimizer(options, fixture_parameters()); });
  EXPECT_NE(message.find("'linaer.weight*'"), std::string::npos) << message;
  EXPECT_NE(message.find("'linear.weight'"), std::string::npos) << message;
  EXPECT_THROW(make_optimizer(options, fixture_parameters()), ConfigError);
}

TEST(Optimizer, nesterov_without_momentum_is_refused) {
  OptimizerOptions options{.kind = "sgd"};
  options.nesterov = true;
  EXPECT_THROW(make_optimizer(options, fixture_parameters()), ConfigError);
}

TEST(Optimizer, a_gradient_in_another_layout_is_refused) {
  for (const char* kind : {"adamw", "sgd"}) {
    const auto weight = at::randn({4, 3, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
    const NamedParameter parameter{"conv.weight", weight.requires_grad_()};
    const auto optimizer = make_optimizer({.kind = kind}, {parameter});
    // Assigned directly: mutable_grad checks nothing, like a bucket view of a reducer.
    parameter.tensor.mutable_grad() = at::randn({4, 3, 3, 3});
    const auto message = message_of([&] { optimizer->step({.learning_rate = 0.1}); });
    EXPECT_NE(message.find("'conv.weight'"), std::string::npos) << message;
    EXPECT_NE(message.find("strides"), std::string::npos) << message;
  }
}

TEST(Optimizer, an_expanded_or_integer_parameter_is_refused) {
  EXPECT_NE(message_of([] { make_optimizer({}, {{"w", at::ones({1, 3}).expand({4, 3})}}); }), "");
  EXPECT_NE(message_of([] { make_optimizer({}, {{"w", at::ones({3}, at::kLong)}}); }), "");
}

TEST(Optimizer, equals_torch_over_20_steps_to_1e_6) {
  const TensorMap& inputs = fixture("optimizer_inputs");
  const TensorMap& expected = fixture("optimizer_expected");
  for (const Case& test : cases()) {
    const auto parameters = fixture_parameters();
    const auto optimizer = make_optimizer(test.options, parameters);
    const bool is_late = test.name.ends_with("_late");
    for (int64_t step = 0; step < kSteps; ++step) {
      set_gradients(parameters, step);
      if (test.max_norm > 0) {
        const at::Tensor norm = clip_norm_(gradients_of(parameters), test.max_norm);
        EXPECT_LT(difference(norm, expected.at(test.name + "/norms")[step]), 1e-6);
      }
      std::vector<uint8_t> active(parameters.size(), 1);
      active[1] = !is_late || inputs.at("late")[step].item<int64_t>() != 0;
      optimizer->step({.learning_rate = inputs.at("learning_rates")[step].item<double>(),
                       .active = is_late ? &active : nullptr});
      for (const NamedParameter& parameter : parameters) {
        const at::Tensor& values = expected.at(test.name + "/" + parameter.name);
        ASSERT_LT(difference(parameter.tensor.detach(), values[step]), 1e-6)
            << test.name << " " << parameter.name << " step " << step;
      }
    }
  }
}

TEST(Optimizer, runs_in_float64_and_agrees_with_float32) {
  for (const char* kind : {"adamw", "sgd"}) {
    const auto wide = fixture_parameters(at::kDouble);
    const auto narrow = fixture_parameters();
    const auto wide_optimizer = make_optimizer({.kind = kind, .momentum = 0.9}, wide);
    const auto narrow_optimizer = make_optimizer({.kind = kind, .momentum = 0.9}, narrow);
    for (int64_t step = 0; step < kSteps; ++step) {
      set_gradients(wide, step);
      set_gradients(narrow, step);
      wide_optimizer->step({.learning_rate = 0.02});
      narrow_optimizer->step({.learning_rate = 0.02});
    }
    for (size_t i = 0; i < wide.size(); ++i) {
      EXPECT_EQ(wide[i].tensor.scalar_type(), at::kDouble);
      const double error =
          difference(narrow[i].tensor.detach().to(at::kDouble), wide[i].tensor.detach());
      EXPECT_LT(error, 1e-5);
      EXPECT_GT(error, 0);
    }
  }
}

TEST(Optimizer, found_inf_leaves_parameters_and_state_bitwise) {
  for (const Case& test : cases()) {
    for (const bool fresh : {true, false}) {
      const auto parameters = fixture_parameters();
      const auto optimizer = make_optimizer(test.options, parameters);
      set_gradients(parameters, 0);
      if (!fresh) optimizer->step({.learning_rate = 0.02});
      const auto values = values_of(parameters);
      State before = optimizer->state();
      std::vector<at::Tensor> state;
      for (const auto& [name, tensor] : before.tensors) state.push_back(tensor.clone());
      gradients_of(parameters)[0].fill_(std::numeric_limits<float>::infinity());
      std::vector<uint8_t> active = {1, 0, 1, 1};
      optimizer->step({.learning_rate = 0.02, .found_inf = at::ones({1})});
      optimizer->step({.learning_rate = 0.02, .active = &active, .found_inf = at::ones({})});
      EXPECT_TRUE(all_equal(values_of(parameters), values)) << test.name;
      std::vector<at::Tensor> after;
      for (const auto& [name, tensor] : optimizer->state().tensors) after.push_back(tensor);
      EXPECT_TRUE(all_equal(after, state)) << test.name;
      EXPECT_EQ(optimizer->state().values, before.values) << test.name;
    }
  }
}

TEST(Optimizer, a_run_with_skipped_steps_equals_one_without_them) {
  for (const Case& test : cases()) {
    const auto plain = fixture_parameters();
    const auto skipping = fixture_parameters();
    const auto plain_optimizer = make_optimizer(test.options, plain);
    const auto skipping_optimizer = make_optimizer(test.options, skipping);
    for (int64_t step = 0; step < 6; ++step) {
      set_gradients(plain, step);
      set_gradients(skipping, kSteps - 1 - step);  // the gradients of a step that is skipped
      skipping_optimizer->step({.learning_rate = 0.02, .found_inf = at::ones({1})});
      set_gradients(skipping, step);
      plain_optimizer->step({.learning_rate = 0.02});
      skipping_optimizer->step({.learning_rate = 0.02, .found_inf = at::zeros({1})});
    }
    EXPECT_TRUE(all_equal(values_of(plain), values_of(skipping))) << test.name;
  }
}

TEST(Optimizer, a_channels_last_parameter_equals_the_contiguous_run) {
  for (const Case& test : cases()) {
    if (!test.options.groups.empty()) continue;
    const at::Tensor initial = at::randn({4, 3, 3, 3});
    const NamedParameter plain{"w", initial.clone().requires_grad_()};
    const NamedParameter last{"w", initial.clone(at::MemoryFormat::ChannelsLast).requires_grad_()};
    const auto plain_optimizer = make_optimizer(test.options, {plain});
    const auto last_optimizer = make_optimizer(test.options, {last});
    for (int64_t step = 0; step < 3; ++step) {
      const at::Tensor gradient = at::randn({4, 3, 3, 3});
      plain.tensor.mutable_grad() = gradient.clone();
      last.tensor.mutable_grad() = gradient.clone(at::MemoryFormat::ChannelsLast);
      plain_optimizer->step({.learning_rate = 0.02});
      last_optimizer->step({.learning_rate = 0.02});
    }
    for (const auto& [name, tensor] : last_optimizer->state().tensors) {
      if (tensor.dim() != 4) continue;
      EXPECT_EQ(tensor.strides(), last.tensor.strides()) << name;
    }
    // The kernels vectorise along memory, so a fused multiply-add may round differently at an end.
    EXPECT_LT(difference(last.tensor.detach(), plain.tensor.detach()), 1e-6) << test.name;
  }
}

TEST(Optimizer, a_parameter_without_gradient_is_skipped_with_its_state) {
  for (const char* kind : {"adamw", "sgd"}) {
    const auto parameters = fixture_parameters();
    const auto optimizer = make_optimizer({.kind = kind, .momentum = 0.9}, parameters);
    set_gradients(parameters, 0);
    parameters[2].tensor.mutable_grad() = at::Tensor();
    const auto before = values_of(parameters);
    optimizer->step({.learning_rate = 0.1});
    const auto after = values_of(parameters);
    EXPECT_TRUE(at::equal(after[2], before[2]));
    EXPECT_FALSE(at::equal(after[1], before[1]));
    for (const auto& [name, tensor] : optimizer->state().tensors) {
      if (!name.starts_with("conv.weight.")) continue;
      EXPECT_EQ(tensor.abs().sum().item<double>(), 0) << name;
    }
  }
}

TEST(Optimizer, a_replaced_gradient_tensor_is_noticed) {
  const auto parameters = fixture_parameters();
  const auto optimizer = make_optimizer({.kind = "sgd", .weight_decay = 0}, parameters);
  set_gradients(parameters, 0);
  optimizer->step({.learning_rate = 0});
  const auto before = values_of(parameters);
  for (const NamedParameter& parameter : parameters) {
    parameter.tensor.mutable_grad() = at::ones_like(parameter.tensor.detach());
  }
  optimizer->step({.learning_rate = 0.5});
  const auto after = values_of(parameters);
  for (size_t i = 0; i < after.size(); ++i) EXPECT_TRUE(at::equal(after[i], before[i] - 0.5));
}

}  // namespace
}  // namespace tanren::testing
