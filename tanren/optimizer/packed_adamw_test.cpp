#include "tanren/optimizer/packed_adamw.h"

#include "tanren/base/error.h"
#include "tanren/config/kinds.h"
#include "tanren/ops/eight_bit.h"

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
      {"h.0.weight", at::randn({100, 77})},  // not a multiple of the block size
      {"h.0.bias", at::randn({100})}};
  for (auto& parameter : parameters) {
    at::Tensor& tensor = parameter.tensor;
    tensor.requires_grad_(true);
    tensor.mutable_grad() = at::zeros_like(tensor);
  }
  return parameters;
}

// Gradients of widely different sizes, as in a network.
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

// Issue 21: patterns were matched against only the parameters that a rank updates or that are
// trained.
TEST(PackedAdamW, patterns_of_fp32_state_are_of_the_whole_model) {
  const auto model = large_parameters();
  auto options = packed_options("8bit");
  options.fp32_state = {"h.0.weight"};
  const auto trained = make_optimizer(options, {model[0]}, model);
  EXPECT_TRUE(trained->state().tensors.contains("wte.weight.exp_avg_codes"));
  const auto slice_of = [](const NamedParameter& parameter) {
    NamedParameter slice{parameter.name + "@0", parameter.tensor.detach().view({-1})};
    slice.whole_name = parameter.name;
    slice.whole = parameter.tensor;
    return slice;
  };
  const auto sliced = make_optimizer(options, {slice_of(model[0])}, model);
  EXPECT_TRUE(sliced->state().tensors.contains("wte.weight@0.exp_avg_codes"));
  const auto excepted = make_optimizer(options, {slice_of(model[1])}, model);
  EXPECT_TRUE(excepted->state().tensors.contains("h.0.weight@0.exp_avg"));
  options.fp32_state = {"h.1.weight"};
  EXPECT_THROW(make_optimizer(options, {model[0]}, model), ConfigError);
  EXPECT_THROW(make_optimizer(options, {slice_of(model[0])}, model), ConfigError);
}

// The numbers of the channels-last `kernel` in memory order, as a contiguous tensor.
at::Tensor laid_out(const at::Tensor& kernel) {
  return kernel.detach().permute({0, 2, 3, 1}).clone(at::MemoryFormat::Contiguous);
}

// Issue 21: kernels in channels-last kept fp32 moments.
TEST(PackedAdamW, packs_kernels_in_channels_last_and_updates_them_as_they_lie) {
  for (const auto& [state, most] : {std::pair{"8bit", 2.1}, {"bf16", 4.001}}) {
    SCOPED_TRACE(state);
    at::manual_seed(3);
    const at::Tensor start = at::randn({32, 24, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
    std::vector<NamedParameter> last = {{"conv.weight", start.clone().requires_grad_(true)}};
    std::vector<NamedParameter> plain = {{"conv.weight", laid_out(start).requires_grad_(true)}};
    ASSERT_FALSE(last[0].tensor.is_contiguous());
    const auto one = make_optimizer(packed_options(state), last);
    const auto other = make_optimizer(packed_options(state), plain);
    double bytes = 0;
    for (const auto& [name, tensor] : one->state().tensors) {
      bytes += static_cast<double>(tensor.nbytes());
    }
    EXPECT_LE(bytes / static_cast<double>(start.numel()), most);
    for (int64_t step = 0; step < 5; ++step) {
      at::manual_seed(static_cast<uint64_t>(step));
      const at::Tensor gradient =
          at::randn(start.sizes()).contiguous(at::MemoryFormat::ChannelsLast);
      at::Tensor(last[0].tensor).mutable_grad() = gradient;
      at::Tensor(plain[0].tensor).mutable_grad() = laid_out(gradient);
      one->step({.learning_rate = 0.01});
      other->step({.learning_rate = 0.01});
    }
    EXPECT_TRUE(at::equal(laid_out(last[0].tensor), plain[0].tensor));
    EXPECT_FALSE(at::equal(last[0].tensor, start));
  }
}

// The state as a file would give it back: contiguous copies of the tensors, and the values.
State filed(const State& state) {
  State file{{}, state.values};
  for (const auto& [name, tensor] : state.tensors) {
    file.tensors.set(name, tensor.contiguous().clone());
  }
  return file;
}

// A kernel in this layout after 3 updates.
struct Trained {
  Trained(const std::string& state, at::MemoryFormat format) {
    at::manual_seed(3);
    const at::Tensor start = at::randn({32, 24, 3, 3}).contiguous(format);
    parameters = {{"conv.weight", start.requires_grad_(true)}};
    optimizer = make_optimizer(packed_options(state), parameters);
  }
  void step(int64_t number) const {
    at::manual_seed(static_cast<uint64_t>(number));
    at::Tensor weight = parameters[0].tensor;
    weight.mutable_grad() = at::empty_like(weight).copy_(at::randn(weight.sizes()));
    optimizer->step({.learning_rate = 0.01});
  }
  // A moment in fp32 and in the kernel's shape.
  at::Tensor moment(const char* name, bool is_signed) const {
    const State state = optimizer->state();
    const std::string key = std::string("conv.weight.") + name;
    const at::Tensor& weight = parameters[0].tensor;
    if (state.tensors.contains(key)) return state.tensors.at(key).to(at::kFloat);
    return from_eight_bit(state.tensors.at(key + "_codes"), state.tensors.at(key + "_scales"),
                          is_signed, kPackedBlock)
        .as_strided(weight.sizes(), weight.strides());
  }

  std::vector<NamedParameter> parameters;
  std::unique_ptr<Optimizer> optimizer;
};

double apart(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

TEST(PackedAdamW, state_of_one_layout_loads_in_either_and_bitwise_in_its_own) {
  constexpr auto kPlain = at::MemoryFormat::Contiguous, kLast = at::MemoryFormat::ChannelsLast;
  for (const std::string state : {"8bit", "bf16"}) {
    for (const auto& [from, to] :
         {std::pair{kPlain, kPlain}, {kPlain, kLast}, {kLast, kPlain}, {kLast, kLast}}) {
      SCOPED_TRACE(state + (from == to ? " same" : " other"));
      const Trained one(state, from);
      for (int64_t step = 0; step < 3; ++step) one.step(step);
      const Trained other(state, to);
      other.optimizer->load(filed(one.optimizer->state()));
      const bool exact = from == to || state == "bf16";
      for (const auto& [name, is_signed] : {std::pair{"exp_avg", true}, {"exp_avg_sq", false}}) {
        const double error = apart(other.moment(name, is_signed), one.moment(name, is_signed));
        EXPECT_LE(error, exact ? 0 : 0.02) << name;
        EXPECT_TRUE(exact || error > 0) << name;
      }
      EXPECT_EQ(other.optimizer->state().tensors.at("conv.weight.step").item<float>(), 3);
      other.step(9);  // the loaded layout lets training continue
    }
  }
}

TEST(PackedAdamW, moments_in_fp32_and_in_one_dimension_are_taken_and_others_refused) {
  for (const std::string state : {"8bit", "bf16"}) {
    SCOPED_TRACE(state);
    const Trained one(state, at::MemoryFormat::ChannelsLast);
    for (int64_t step = 0; step < 3; ++step) one.step(step);
    State plain;
    plain.tensors.set("conv.weight.exp_avg", one.moment("exp_avg", true).contiguous());
    plain.tensors.set("conv.weight.exp_avg_sq", one.moment("exp_avg_sq", false).contiguous());
    plain.tensors.set("conv.weight.step", at::scalar_tensor(3.0, at::kFloat));
    const Trained other(state, at::MemoryFormat::Contiguous);
    other.optimizer->load(plain);
    EXPECT_LT(apart(other.moment("exp_avg", true), one.moment("exp_avg", true)), 0.02);
    EXPECT_LT(apart(other.moment("exp_avg_sq", false), one.moment("exp_avg_sq", false)), 0.02);
    // As in older files, whose tensors did not have the parameter's shape.
    State flat;
    for (const auto& [name, tensor] : filed(other.optimizer->state()).tensors) {
      flat.tensors.set(name, tensor.dim() == 4 ? tensor.view({-1}) : tensor);
    }
    const Trained third(state, at::MemoryFormat::Contiguous);
    third.optimizer->load(flat);
    EXPECT_EQ(apart(third.moment("exp_avg", true), other.moment("exp_avg", true)), 0);
    State wrong = plain;
    wrong.tensors.set("conv.weight.exp_avg", at::zeros({24, 32, 3, 3}));
    EXPECT_THROW(other.optimizer->load(wrong), CheckpointError);
    State order = filed(one.optimizer->state());
    order.values["conv.weight.order"] = std::string("0,2,3,7");
    if (state == "8bit") {
      EXPECT_THROW(other.optimizer->load(order), CheckpointError);
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
  // A moment halfway between two codes may be rounded to either.
  const double moved = (all_of(one) - start).norm().item<double>();
  EXPECT_LT((all_of(one) - all_of(other)).norm().item<double>(), 0.01 * moved);
}

TEST(PackedAdamW, the_way_by_operations_follows_the_memory_of_a_channels_last_kernel) {
  at::manual_seed(3);
  const at::Tensor start = at::randn({32, 24, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
  std::vector<NamedParameter> one = {{"w", start.clone().requires_grad_(true)}};
  std::vector<NamedParameter> other = {{"w", start.clone().requires_grad_(true)}};
  const auto kernel = make_packed_adamw(packed_options("8bit"), one);
  const auto operations = make_packed_adamw(packed_options("8bit"), other, Way::foreach);
  for (int64_t step = 0; step < 5; ++step) {
    const at::Tensor gradient = at::randn(start.sizes()).contiguous(at::MemoryFormat::ChannelsLast);
    at::Tensor(one[0].tensor).mutable_grad() = gradient.clone();
    at::Tensor(other[0].tensor).mutable_grad() = gradient.clone();
    kernel->step({.learning_rate = 0.01});
    operations->step({.learning_rate = 0.01});
  }
  const double moved = (one[0].tensor - start).norm().item<double>();
  EXPECT_LT((one[0].tensor - other[0].tensor).norm().item<double>(), 0.01 * moved);
}

TEST(PackedAdamW, bf16_moments_do_not_stand_still) {
  // Rounding to nearest would always lose (1 - beta2) × (g² - v), a thousandth of v.
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
