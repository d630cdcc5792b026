#include "tanren/optimizer/packed_adamw.h"

#include "tanren/base/error.h"
#include "tanren/optimizer/packed_kernels.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <set>

namespace tanren::testing {
namespace {

std::vector<NamedParameter> large_parameters() {
  at::manual_seed(11);
  std::vector<NamedParameter> parameters = {
      {"wte.weight", at::randn({80, 64})},
      {"h.0.weight", at::randn({100, 77})},  // no whole blocks
      {"h.0.bias", at::randn({100})}};
  for (auto& parameter : parameters) {
    at::Tensor& tensor = parameter.tensor;
    tensor.requires_grad_(true);
    tensor.mutable_grad() = at::zeros_like(tensor);
  }
  return parameters;
}

// Gradients of widely different size, as those of a network.
void set_packed_gradients(const std::vector<NamedParameter>& parameters, int64_t step) {
  at::manual_seed(static_cast<uint64_t>(100 + step));
  const at::NoGradGuard no_grad;
  for (const auto& parameter : parameters) {
    at::Tensor gradient = parameter.tensor.grad();
    const auto sizes = gradient.sizes();
    gradient.copy_(at::randn(sizes) * at::randn(sizes).exp() * 1e-3);
  }
}

OptimizerOptions packed_options(const std::string& state) {
  OptimizerOptions options;
  options.state = state;
  options.weight_decay = 0.1;
  return with_defaults(options);
}

at::Tensor all_of(const std::vector<NamedParameter>& parameters) {
  std::vector<at::Tensor> flat;
  flat.reserve(parameters.size());
  for (const auto& parameter : parameters) flat.push_back(parameter.tensor.detach().reshape({-1}));
  return at::cat(flat);
}

TEST(PackedAdamW, a_pattern_of_fp32_state_without_match_is_refused) {
  auto options = packed_options("8bit");
  options.fp32_state = {"*embedding*"};
  EXPECT_THROW(make_optimizer(options, large_parameters()), ConfigError);
}

TEST(PackedAdamW, codes_are_256_values_and_the_nearest_is_found) {
  for (const bool is_signed : {true, false}) {
    const auto& values = packed_values(is_signed);
    EXPECT_EQ(std::set<float>(values.begin(), values.end()).size(), 256u);
    EXPECT_EQ(values.back(), 1.0F);
    EXPECT_EQ(values[packed_code(0, is_signed)], 0.0F);
    for (int i = 0; i < 4000; ++i) {
      const double magnitude = std::exp(-20.0 * ((i * 2654435761U) % 100000) / 100000.0);
      const auto value = static_cast<float>(is_signed && i % 2 == 1 ? -magnitude : magnitude);
      const float found = values[packed_code(value, is_signed)];
      float best = values[0];
      for (const float other : values) {
        if (std::abs(other - value) < std::abs(best - value)) best = other;
      }
      EXPECT_FLOAT_EQ(std::abs(found - value), std::abs(best - value)) << value;
    }
  }
}

TEST(PackedAdamW, takes_2_1_bytes_an_element_where_it_packs_and_names_what_it_keeps) {
  const auto parameters = large_parameters();
  const auto optimizer = make_optimizer(packed_options("8bit"), parameters);
  int64_t bytes = 0;
  std::set<std::string> names;
  for (const auto& [name, tensor] : optimizer->state().tensors) {
    names.insert(name);
    if (name.rfind("h.0.weight", 0) == 0) bytes += static_cast<int64_t>(tensor.nbytes());
  }
  EXPECT_LE(static_cast<double>(bytes), 2.1 * 7700);
  for (const char* name : {"h.0.weight.exp_avg_codes", "h.0.weight.exp_avg_sq_scales",
                           "wte.weight.exp_avg", "h.0.bias.exp_avg_sq", "h.0.weight.step"}) {
    EXPECT_EQ(names.count(name), 1u) << name;
  }
  EXPECT_EQ(names.count("h.0.weight.exp_avg"), 0u);
}

TEST(PackedAdamW, stays_near_fp32_adamw_and_is_it_where_it_packs_nothing) {
  for (const char* kind : {"adamw", "adam"}) {
    for (const std::string state : {"bf16", "8bit"}) {
      auto options = packed_options(state);
      options.kind = kind;
      const auto packed = large_parameters(), exact = large_parameters();
      const at::Tensor start = all_of(exact).clone();
      const auto mine = make_optimizer(options, packed);
      options.state = "fp32";
      const auto reference = make_optimizer(options, exact);
      for (int64_t step = 0; step < 50; ++step) {
        set_packed_gradients(packed, step);
        set_packed_gradients(exact, step);
        mine->step({.learning_rate = 0.01});
        reference->step({.learning_rate = 0.01});
      }
      const double moved = (all_of(exact) - start).norm().item<double>();
      const double apart = (all_of(packed) - all_of(exact)).norm().item<double>();
      EXPECT_LT(apart, (state == "bf16" ? 0.02 : 0.1) * moved) << kind << " " << state;
      EXPECT_GT(apart, 0) << kind << " " << state;
      EXPECT_TRUE(at::equal(packed[0].tensor, exact[0].tensor)) << "an embedding";
      EXPECT_TRUE(at::equal(packed[2].tensor, exact[2].tensor)) << "a small one";
    }
  }
}

TEST(PackedAdamW, the_way_by_operations_agrees_with_the_kernel) {
  const auto options = packed_options("8bit");
  const auto one = large_parameters(), other = large_parameters();
  const auto kernel = make_packed_adamw(options, one);
  const auto operations = make_packed_adamw(options, other, Way::foreach);
  const at::Tensor start = all_of(one).clone();
  for (int64_t step = 0; step < 5; ++step) {
    set_packed_gradients(one, step);
    set_packed_gradients(other, step);
    kernel->step({.learning_rate = 0.01});
    operations->step({.learning_rate = 0.01});
  }
  // A moment between two codes may fall to either side.
  const double moved = (all_of(one) - start).norm().item<double>();
  EXPECT_LT((all_of(one) - all_of(other)).norm().item<double>(), 0.01 * moved);
}

TEST(PackedAdamW, bf16_moments_do_not_stand_still) {
  // Round to nearest would lose (1 - beta2) × (g² - v), a thousandth of v, for ever.
  std::vector<NamedParameter> parameters = {{"w", at::zeros({8192}).requires_grad_(true)}};
  parameters[0].tensor.mutable_grad() = at::full({8192}, 1.0);
  const auto optimizer = make_optimizer(packed_options("bf16"), parameters);
  for (int step = 0; step < 2000; ++step) optimizer->step({.learning_rate = 1e-6});
  const at::Tensor second = optimizer->state().tensors.at("w.exp_avg_sq").to(at::kFloat);
  EXPECT_NEAR(second.mean().item<double>(), 1 - std::pow(0.999, 2000), 0.01);
}

TEST(PackedAdamW, goes_on_bitwise_from_its_state) {
  for (const char* state : {"bf16", "8bit"}) {
    const auto whole = large_parameters();
    const auto undisturbed = make_optimizer(packed_options(state), whole);
    State saved;
    std::vector<at::Tensor> weights;
    for (int64_t step = 0; step < 6; ++step) {
      if (step == 3) {
        for (const auto& [name, tensor] : undisturbed->state().tensors) {
          saved.tensors.set(name, tensor.clone());
        }
        for (const auto& parameter : whole) weights.push_back(parameter.tensor.detach().clone());
      }
      set_packed_gradients(whole, step);
      undisturbed->step({.learning_rate = 0.01});
    }
    const auto rest = large_parameters();
    {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < rest.size(); ++i) at::Tensor(rest[i].tensor).copy_(weights[i]);
    }
    const auto resumed = make_optimizer(packed_options(state), rest);
    resumed->load(saved);
    for (int64_t step = 3; step < 6; ++step) {
      set_packed_gradients(rest, step);
      resumed->step({.learning_rate = 0.01});
    }
    EXPECT_TRUE(at::equal(all_of(rest), all_of(whole))) << state;
  }
}

TEST(PackedAdamW, a_skip_flag_and_an_inactive_parameter_change_nothing) {
  const auto parameters = large_parameters();
  const auto optimizer = make_optimizer(packed_options("8bit"), parameters);
  set_packed_gradients(parameters, 0);
  const at::Tensor before = all_of(parameters).clone();
  optimizer->step({.learning_rate = 0.01, .found_inf = at::ones({1})});
  EXPECT_TRUE(at::equal(all_of(parameters), before));
  const at::Tensor weight = parameters[1].tensor.detach().clone();
  const std::vector<uint8_t> active = {1, 0, 1};
  optimizer->step({.learning_rate = 0.01, .active = &active});
  EXPECT_TRUE(at::equal(parameters[1].tensor, weight));
  EXPECT_EQ(optimizer->state().tensors.at("h.0.weight.step").item<float>(), 0);
}

}  // namespace
}  // namespace tanren::testing
