// Every kind except AdamW and SGD against torch, transformers and lion-pytorch. Also tests what a
// run needs of each kind: skipping, resuming, layouts, dtypes.
#include "tanren/base/error.h"
#include "tanren/config/kinds.h"
#include "tanren/optimizer/element_optimizer.h"
#include "tanren/optimizer/fixture_test_util.h"
#include "tanren/optimizer/muon.h"
#include "tanren/optimizer/optimizer.h"

#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>

#include <functional>
#include <limits>

namespace tanren::testing {
namespace {

struct KindCase {
  std::string name;
  OptimizerOptions options;
  double tolerance = 1e-6;
};

// The C++ side of the cases in tests/fixtures/make/optimizer_fixtures.py.
std::vector<KindCase> kind_cases() {
  using O = OptimizerOptions;
  std::vector<KindCase> cases;
  const auto add = [&](const std::string& name, const std::function<void(O&)>& change = {}) {
    KindCase test{name, {.kind = name.substr(0, name.find('_'))}};
    if (change) change(test.options);
    cases.push_back(std::move(test));
  };
  add("adam");
  add("adam_decay", [](O& o) {
    o.weight_decay = 0.05;
    o.beta1 = 0.8;
    o.beta2 = 0.95;
    o.eps = 1e-6;
  });
  add("adam_amsgrad", [](O& o) {
    o.weight_decay = 0.02;
    o.beta2 = 0.5;
    o.amsgrad = true;
  });
  add("adam_late");
  add("adamw_amsgrad", [](O& o) {
    o.weight_decay = 0.1;
    o.beta2 = 0.5;
    o.amsgrad = true;
  });
  add("nadam");
  add("nadam_decay", [](O& o) {
    o.weight_decay = 0.05;
    o.beta1 = 0.8;
    o.beta2 = 0.95;
    o.momentum_decay = 0.1;
  });
  add("nadam_decoupled", [](O& o) {
    o.weight_decay = 0.1;
    o.decoupled_weight_decay = true;
    o.eps = 1e-6;
  });
  add("nadam_late");
  add("radam");
  add("radam_decay", [](O& o) {
    o.weight_decay = 0.05;
    o.beta1 = 0.8;
    o.beta2 = 0.9;
  });
  add("radam_decoupled", [](O& o) {
    o.weight_decay = 0.1;
    o.decoupled_weight_decay = true;
    o.eps = 1e-6;
    o.beta1 = 0.7;
    o.beta2 = 0.99;
  });
  add("radam_late", [](O& o) { o.beta2 = 0.9; });
  add("rmsprop");
  add("rmsprop_momentum", [](O& o) {
    o.momentum = 0.9;
    o.alpha = 0.9;
    o.eps = 1e-6;
  });
  add("rmsprop_centered", [](O& o) {
    o.centered = true;
    o.weight_decay = 0.05;
    o.alpha = 0.8;
  });
  add("rmsprop_all", [](O& o) {
    o.centered = true;
    o.momentum = 0.5;
    o.weight_decay = 0.01;
  });
  add("rmsprop_late", [](O& o) {
    o.centered = true;
    o.momentum = 0.9;
  });
  add("adagrad");
  add("adagrad_decay", [](O& o) {
    o.learning_rate_decay = 0.1;
    o.weight_decay = 0.03;
    o.initial_accumulator = 0.5;
    o.eps = 1e-6;
  });
  add("adagrad_late", [](O& o) { o.learning_rate_decay = 0.05; });
  add("adafactor");
  add("adafactor_options", [](O& o) {
    o.beta2_decay = -0.5;
    o.scale_floor = 2;
    o.clip_threshold = 1.5;
    o.weight_decay = 0.1;
  });
  add("adafactor_late");
  add("adafactor_fixed", [](O& o) {
    o.relative_step = false;
    o.weight_decay = 0.05;
  });
  add("lion");
  add("lion_options", [](O& o) {
    o.beta1 = 0.5;
    o.beta2 = 0.9;
    o.weight_decay = 0.2;
  });
  add("muon");
  add("muon_original", [](O& o) {
    o.adjust_learning_rate = "original";
    o.nesterov = false;
    o.momentum = 0.8;
    o.newton_schulz_steps = 3;
    o.weight_decay = 0;
  });
  // torch orthogonalises in bf16; here the CPU does it in fp32.
  add("muon_narrow");
  cases.back().tolerance = 1e-2;
  return cases;
}

// Null for a kind without an ElementRule.
std::unique_ptr<ElementRule> rule_of_kind(const OptimizerOptions& asked) {
  const OptimizerOptions options = with_defaults(asked);
  if (options.kind == "adagrad") return make_adagrad_rule(options);
  if (options.kind == "lion") return make_lion_rule(options);
  if (options.kind == "nadam") return make_nadam_rule(options);
  if (options.kind == "radam") return make_radam_rule(options);
  if (options.kind == "rmsprop") return make_rmsprop_rule(options);
  return nullptr;
}

double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

void expect_parity(const KindCase& test, Optimizer& optimizer,
                   const std::vector<NamedParameter>& parameters) {
  const TensorMap& inputs = fixture("optimizer_inputs");
  const TensorMap& expected = fixture("optimizer_kinds");
  const bool is_late = test.name.ends_with("_late");
  for (int64_t step = 0; step < kSteps; ++step) {
    set_gradients(parameters, step);
    std::vector<uint8_t> active(parameters.size(), 1);
    active[1] = !is_late || inputs.at("late")[step].item<int64_t>() != 0;
    optimizer.step({.learning_rate = inputs.at("learning_rates")[step].item<double>(),
                    .active = is_late ? &active : nullptr});
    for (const NamedParameter& parameter : parameters) {
      const at::Tensor& values = expected.at(test.name + "/" + parameter.name);
      ASSERT_LT(relative_difference(parameter.tensor.detach(), values[step]), test.tolerance)
          << test.name << " " << parameter.name << " step " << step;
    }
  }
}

State copied(const State& state) {
  State copy;
  copy.values = state.values;
  for (const auto& [name, tensor] : state.tensors) copy.tensors.set(name, tensor.clone());
  return copy;
}

bool same_state(const State& a, const State& b) {
  bool same = a.tensors.size() == b.tensors.size() && a.values == b.values;
  for (const auto& [name, tensor] : a.tensors) {
    same = same && at::equal(tensor, b.tensors.at(name));
  }
  return same;
}

TEST(OptimizerKinds, an_adamw_pattern_of_muon_that_matches_nothing_is_refused) {
  OptimizerOptions options{.kind = "muon"};
  options.adamw_parameters = {"hed*"};
  EXPECT_THROW(make_optimizer(options, fixture_parameters()), ConfigError);
}

TEST(OptimizerKinds, a_layer_pattern_that_matches_nothing_is_refused) {
  OptimizerOptions options;
  options.layer_decay = 0.5;
  options.layers = {"linaer.*"};
  EXPECT_THROW(make_optimizer(options, fixture_parameters()), ConfigError);
}

TEST(OptimizerKinds, a_gradient_in_another_layout_is_refused) {
  for (const KindCase& test : kind_cases()) {
    const auto weight = at::randn({4, 3, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
    const NamedParameter parameter{"conv.weight", weight.requires_grad_()};
    const auto optimizer = make_optimizer(test.options, {parameter});
    parameter.tensor.mutable_grad() = at::randn({4, 3, 3, 3});
    EXPECT_THROW(optimizer->step({.learning_rate = 0.1}), Error) << test.name;
  }
}

TEST(OptimizerKinds, equal_their_originals_over_20_steps_to_1e_6) {
  for (const KindCase& test : kind_cases()) {
    const auto parameters = fixture_parameters();
    expect_parity(test, *make_optimizer(test.options, parameters), parameters);
  }
}

TEST(OptimizerKinds, equal_their_originals_by_foreach_operations_too) {
  size_t seen = 0;
  for (const KindCase& test : kind_cases()) {
    auto rule = rule_of_kind(test.options);
    if (!rule) continue;
    ++seen;
    const auto parameters = fixture_parameters();
    const auto optimizer = make_element_optimizer(with_defaults(test.options), parameters,
                                                  std::move(rule), Way::foreach);
    expect_parity(test, *optimizer, parameters);
  }
  EXPECT_GE(seen, 17u);
}

TEST(OptimizerKinds, run_in_float64_and_agree_with_float32) {
  for (const KindCase& test : kind_cases()) {
    const auto wide = fixture_parameters(at::kDouble);
    const auto narrow = fixture_parameters();
    const auto wide_optimizer = make_optimizer(test.options, wide);
    const auto narrow_optimizer = make_optimizer(test.options, narrow);
    for (int64_t step = 0; step < kSteps; ++step) {
      set_gradients(wide, step);
      set_gradients(narrow, step);
      wide_optimizer->step({.learning_rate = 0.02});
      narrow_optimizer->step({.learning_rate = 0.02});
    }
    for (size_t i = 0; i < wide.size(); ++i) {
      const double error =
          relative_difference(narrow[i].tensor.detach().to(at::kDouble), wide[i].tensor.detach());
      EXPECT_LT(error, 1e-5) << test.name;
      EXPECT_GT(error, 0) << test.name;
    }
  }
}

TEST(OptimizerKinds, run_in_bf16) {
  for (const KindCase& test : kind_cases()) {
    const auto parameters = fixture_parameters(at::kBFloat16);
    const auto optimizer = make_optimizer(test.options, parameters);
    const auto before = values_of(parameters);
    set_gradients(parameters, 0);
    optimizer->step({.learning_rate = 0.5});
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_FALSE(at::equal(parameters[i].tensor, before[i])) << test.name;
      EXPECT_TRUE(at::isfinite(parameters[i].tensor.detach()).all().item<bool>()) << test.name;
    }
  }
}

TEST(OptimizerKinds, found_inf_leaves_parameters_and_state_bitwise) {
  for (const KindCase& test : kind_cases()) {
    const auto parameters = fixture_parameters();
    const auto optimizer = make_optimizer(test.options, parameters);
    for (const int64_t step : {0, 1}) {
      set_gradients(parameters, step);
      const auto values = values_of(parameters);
      const State before = copied(optimizer->state());
      gradients_of(parameters)[0].fill_(std::numeric_limits<float>::infinity());
      optimizer->step({.learning_rate = 0.02, .found_inf = at::ones({1})});
      EXPECT_TRUE(all_equal(values_of(parameters), values)) << test.name;
      EXPECT_TRUE(same_state(optimizer->state(), before)) << test.name;
      set_gradients(parameters, step);
      optimizer->step({.learning_rate = 0.02, .found_inf = at::zeros({1})});
      EXPECT_FALSE(all_equal(values_of(parameters), values)) << test.name;
    }
  }
}

TEST(OptimizerKinds, a_channels_last_parameter_equals_the_contiguous_run) {
  for (const KindCase& test : kind_cases()) {
    const at::Tensor initial = at::randn({4, 3, 3, 2});
    const NamedParameter plain{"w", initial.clone().requires_grad_()};
    const NamedParameter last{"w", initial.clone(at::MemoryFormat::ChannelsLast).requires_grad_()};
    const auto plain_optimizer = make_optimizer(test.options, {plain});
    const auto last_optimizer = make_optimizer(test.options, {last});
    for (int64_t step = 0; step < 7; ++step) {
      const at::Tensor gradient = at::randn({4, 3, 3, 2});
      plain.tensor.mutable_grad() = gradient.clone();
      last.tensor.mutable_grad() = gradient.clone(at::MemoryFormat::ChannelsLast);
      plain_optimizer->step({.learning_rate = 0.02});
      last_optimizer->step({.learning_rate = 0.02});
    }
    EXPECT_LT(relative_difference(last.tensor.detach(), plain.tensor.detach()), 1e-6) << test.name;
    EXPECT_EQ(last.tensor.strides(), initial.clone(at::MemoryFormat::ChannelsLast).strides());
  }
}

TEST(OptimizerKinds, load_goes_on_bitwise_where_state_was_taken) {
  for (const KindCase& test : kind_cases()) {
    for (const int64_t cut : {0, 1, 6}) {
      const auto whole = fixture_parameters();
      const auto resumed = fixture_parameters();
      const auto optimizer = make_optimizer(test.options, whole);
      const auto late = make_optimizer(test.options, resumed);
      for (int64_t step = 0; step < 10; ++step) {
        if (step == cut) {
          const at::NoGradGuard no_grad;
          for (size_t i = 0; i < whole.size(); ++i) resumed[i].tensor.copy_(whole[i].tensor);
          late->load(copied(optimizer->state()));
        }
        // The second parameter has no gradient every third step, so that step counts differ.
        const std::vector<uint8_t> active = {1, step % 3 != 0, 1, 1};
        set_gradients(whole, step);
        optimizer->step({.learning_rate = 0.02, .active = &active});
        if (step < cut) continue;
        set_gradients(resumed, step);
        late->step({.learning_rate = 0.02, .active = &active});
      }
      EXPECT_TRUE(all_equal(values_of(whole), values_of(resumed))) << test.name << " " << cut;
      EXPECT_TRUE(same_state(optimizer->state(), late->state())) << test.name << " " << cut;
    }
  }
}

TEST(OptimizerKinds, state_has_torchs_names) {
  const auto names_of = [](const OptimizerOptions& options) {
    std::string names;
    for (const auto& [name, tensor] :
         make_optimizer(options, fixture_parameters())->state().tensors) {
      if (name.starts_with("conv.weight.")) names += name.substr(11) + " ";
    }
    return names;
  };
  OptimizerOptions rmsprop{.kind = "rmsprop", .momentum = 0.9};
  rmsprop.centered = true;
  OptimizerOptions amsgrad;
  amsgrad.amsgrad = true;
  EXPECT_EQ(names_of(amsgrad), ".exp_avg .exp_avg_sq .max_exp_avg_sq .step ");
  EXPECT_EQ(names_of(rmsprop), ".square_avg .momentum_buffer .grad_avg .step ");
  EXPECT_EQ(names_of({.kind = "nadam"}), ".exp_avg .exp_avg_sq .step .mu_product ");
  EXPECT_EQ(names_of({.kind = "adagrad"}), ".sum .step ");
  EXPECT_EQ(names_of({.kind = "adafactor"}), ".row_var .col_var .step ");
  EXPECT_EQ(names_of({.kind = "lion"}), ".exp_avg ");
  EXPECT_EQ(names_of({.kind = "muon"}), ".momentum_buffer ");
}

TEST(OptimizerKinds, muon_orthogonalises_wide_tall_and_zero_matrices) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{6, 40}, {40, 6}, {9, 9}}) {
    const at::Tensor matrix = at::randn({rows, columns}, at::kDouble);
    const at::Tensor values = at::linalg_svdvals(orthogonalised(matrix, 12));
    EXPECT_GT(values.min().item<double>(), 0.5);
    EXPECT_LT(values.max().item<double>(), 1.4);
  }
  EXPECT_TRUE(at::isfinite(orthogonalised(at::zeros({3, 4}), 5)).all().item<bool>());
}

TEST(OptimizerKinds, muon_leaves_what_adamw_parameters_names_to_adamw) {
  OptimizerOptions options{.kind = "muon"};
  options.adamw_parameters = {"linear.*"};
  const State state = make_optimizer(options, fixture_parameters())->state();
  EXPECT_TRUE(state.tensors.contains("linear.weight.exp_avg_sq"));
  EXPECT_TRUE(state.tensors.contains("norm.weight.exp_avg_sq"));
  EXPECT_TRUE(state.tensors.contains("conv.weight.momentum_buffer"));
  EXPECT_FALSE(state.tensors.contains("linear.weight.momentum_buffer"));
}

TEST(OptimizerKinds, a_centred_rmsprop_survives_gradients_without_variance) {
  OptimizerOptions options{.kind = "rmsprop"};
  options.centered = true;
  for (const Way way : {Way::automatic, Way::foreach}) {
    const NamedParameter parameter{"w", at::full({1000}, 1.0f).requires_grad_()};
    const auto optimizer =
        make_element_optimizer(with_defaults(options), {parameter}, rule_of_kind(options), way);
    parameter.tensor.mutable_grad() = at::linspace(-3, 3, 1000);
    for (int i = 0; i < 2000; ++i) optimizer->step({.learning_rate = 1e-6});
    EXPECT_TRUE(at::isfinite(parameter.tensor.detach()).all().item<bool>());
  }
}

TEST(OptimizerKinds, layer_decay_scales_the_rate_of_each_layer_and_group) {
  OptimizerOptions options{.kind = "sgd", .weight_decay = 0};
  options.layer_decay = 0.5;
  options.layers = {"linear.*", "conv.*"};  // norm.weight is the third
  options.groups = {{{"linear.bias"}, 0.1, std::nullopt}};
  const auto parameters = fixture_parameters();
  const auto before = values_of(parameters);
  const auto optimizer = make_optimizer(options, parameters);
  set_gradients(parameters, 0);
  optimizer->step({.learning_rate = 1});
  const double scales[] = {0.25, 0.025, 0.5, 1};
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor moved = before[i] - parameters[i].tensor.detach();
    EXPECT_LT(relative_difference(moved, fixture_gradient(parameters[i], 0) * scales[i]), 1e-5);
  }
}

}  // namespace
}  // namespace tanren::testing
