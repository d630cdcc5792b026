#include "tanren/optimizer/master_weights.h"

#include "tanren/base/error.h"
#include "tanren/config/kinds.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace tanren {
namespace {

// A matrix, a convolution in channels-last and a bias, with gradients in fp32.
std::vector<NamedParameter> narrow_parameters(at::ScalarType dtype) {
  at::manual_seed(3);
  const at::Tensor kernel = at::randn({6, 4, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
  std::vector<NamedParameter> parameters = {
      {"kernel", kernel}, {"matrix", at::randn({5, 8})}, {"bias", at::randn({5})}};
  for (auto& parameter : parameters) {
    parameter.tensor = parameter.tensor.to(dtype).requires_grad_();
    parameter.tensor.set_grad_dtype(at::kFloat);
    parameter.tensor.mutable_grad() = at::empty_strided(
        parameter.tensor.sizes(), parameter.tensor.strides(), at::dtype(at::kFloat));
  }
  return parameters;
}

// fp32 parameters with the same values and gradient tensors.
std::vector<NamedParameter> wide_twins(const std::vector<NamedParameter>& parameters) {
  std::vector<NamedParameter> twins;
  for (const auto& own : parameters) {
    at::Tensor twin = own.tensor.detach().to(at::kFloat);
    twin.mutable_grad() = own.tensor.grad();
    twins.push_back({.name = own.name, .tensor = twin});
  }
  return twins;
}

void draw_gradients(const std::vector<NamedParameter>& parameters) {
  const at::NoGradGuard no_grad;
  for (const auto& parameter : parameters) at::Tensor(parameter.tensor.grad()).normal_();
}

TEST(MasterWeights, keep_what_updates_add_below_the_last_bit_of_a_weight) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor weight = at::ones({1}, dtype).requires_grad_();
    weight.set_grad_dtype(at::kFloat);
    weight.mutable_grad() = at::ones({1});
    const auto optimizer = make_master_weights({.kind = "sgd"}, {{"weight", weight}});
    optimizer->step({.learning_rate = 1e-4});
    EXPECT_EQ(weight.item<float>(), 1.0F);  // 1 - 1e-4 rounds to 1
    for (int i = 1; i < 1000; ++i) optimizer->step({.learning_rate = 1e-4});
    EXPECT_NEAR(weight.item<float>(), 0.9, 4e-3);
  }
}

TEST(MasterWeights, are_updated_by_every_optimizer_as_weights_of_fp32) {
  for (const auto& kind : names_of(optimizer_kinds())) {
    const auto narrow = narrow_parameters(at::kBFloat16);
    const auto wide = wide_twins(narrow);
    const OptimizerOptions options{.kind = kind, .adamw_parameters = {"bias"}};
    const auto masters = make_master_weights(options, narrow);
    const auto plain = make_optimizer(options, wide);
    for (int step = 0; step < 4; ++step) {
      draw_gradients(narrow);
      masters->step({.learning_rate = 1e-3});
      plain->step({.learning_rate = 1e-3});
    }
    const State state = masters->state();
    for (size_t i = 0; i < wide.size(); ++i) {
      const at::Tensor& copy = state.tensors.at(narrow[i].name + ".master_weight");
      EXPECT_TRUE(at::equal(copy, wide[i].tensor)) << kind << " " << narrow[i].name;
      EXPECT_TRUE(at::equal(narrow[i].tensor, wide[i].tensor.to(at::kBFloat16))) << kind;
      EXPECT_EQ(copy.strides(), narrow[i].tensor.strides()) << kind;
    }
  }
}

TEST(MasterWeights, stand_still_where_a_parameter_is_not_active_and_in_a_skipped_step) {
  const auto parameters = narrow_parameters(at::kHalf);
  const auto optimizer = make_master_weights({}, parameters);
  draw_gradients(parameters);
  optimizer->step({.learning_rate = 0.1});
  const auto values = [&] {
    std::vector<at::Tensor> all;
    for (const auto& [name, tensor] : optimizer->state().tensors) all.push_back(tensor.clone());
    for (const auto& parameter : parameters) all.push_back(parameter.tensor.detach().clone());
    return all;
  };
  const auto before = values();
  draw_gradients(parameters);
  optimizer->step({.learning_rate = 0.1, .found_inf = at::ones({1})});
  const std::vector<uint8_t> none = {0, 0, 0};
  optimizer->step({.learning_rate = 0.1, .active = &none});
  const auto after = values();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i], after[i])) << i;
}

TEST(MasterWeights, leave_parameters_of_fp32_to_the_optimizer) {
  auto parameters = narrow_parameters(at::kHalf);
  at::Tensor norm = at::ones({4}).requires_grad_();
  norm.mutable_grad() = at::ones({4});
  parameters.push_back({"norm", norm});
  const auto optimizer =
      make_master_weights({.kind = "sgd", .weight_decay = 0, .momentum = 0}, parameters);
  for (const auto& parameter : parameters) at::Tensor(parameter.tensor.grad()).fill_(1);
  optimizer->step({.learning_rate = 0.25});
  EXPECT_TRUE(at::equal(norm, at::full({4}, 0.75, at::kFloat)));
  EXPECT_FALSE(optimizer->state().tensors.contains("norm.master_weight"));
}

TEST(MasterWeights, continue_bitwise_from_their_state) {
  const auto first = narrow_parameters(at::kHalf), second = narrow_parameters(at::kHalf);
  const auto one = make_master_weights({}, first), other = make_master_weights({}, second);
  const auto step = [](Optimizer& optimizer, const std::vector<NamedParameter>& parameters,
                       uint64_t seed) {
    at::manual_seed(seed);
    draw_gradients(parameters);
    optimizer.step({.learning_rate = 1e-3});
  };
  for (uint64_t i = 0; i < 3; ++i) step(*one, first, i);
  State kept;
  for (const auto& [name, tensor] : one->state().tensors) kept.tensors.set(name, tensor.clone());
  step(*one, first, 9);
  other->load(kept);  // writes the weights, too
  step(*other, second, 9);
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(at::equal(first[i].tensor, second[i].tensor)) << first[i].name;
  }
}

TEST(MasterWeights, take_over_weights_that_other_code_wrote_and_keep_the_low_bits_of_the_rest) {
  const auto parameters = narrow_parameters(at::kHalf);
  const auto optimizer = make_master_weights({}, parameters);
  draw_gradients(parameters);
  optimizer->step({.learning_rate = 1e-4});
  const at::Tensor before = optimizer->state().tensors.at("matrix.master_weight").clone();
  {
    const at::NoGradGuard no_grad;
    parameters[1].tensor.detach()[0].fill_(2);
  }
  optimizer->parameters_written();
  const at::Tensor after = optimizer->state().tensors.at("matrix.master_weight");
  EXPECT_TRUE(at::equal(after[0], at::full({8}, 2, at::kFloat)));
  EXPECT_TRUE(at::equal(after.narrow(0, 1, 4), before.narrow(0, 1, 4)));
}

TEST(MasterWeights, refuse_a_state_without_copies_and_write_nothing) {
  const auto parameters = narrow_parameters(at::kHalf);
  const auto masters = make_master_weights({}, parameters);
  const auto plain = make_optimizer({}, wide_twins(parameters));
  draw_gradients(parameters);
  plain->step({.learning_rate = 0.1});
  try {
    masters->load(plain->state());
    FAIL() << "a state without copies was taken";
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string(error.what()).find("'kernel.master_weight'"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(masters->state().tensors.at("bias.exp_avg").count_nonzero().item<int64_t>(), 0);
}

}  // namespace
}  // namespace tanren
