#include "tanren/model/layers.h"

#include "tanren/base/error.h"
#include "tanren/formats/safetensors.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include <gtest/gtest.h>

namespace tanren {
namespace {

const TensorMap& fixture() {
  static const TensorMap tensors =
      read_safetensors(TANREN_SOURCE_DIR "/tests/fixtures/model_layers.safetensors").tensors;
  return tensors;
}

void set_affine(Module& norm) {
  const at::NoGradGuard no_grad;
  norm.named_parameters()["weight"].copy_(at::linspace(0.5, 1.5, 4));
  norm.named_parameters()["bias"].copy_(at::linspace(-1, 1, 4));
}

TEST(Layers, an_unknown_activation_or_norm_names_the_nearest) {
  try {
    activation_named("rleu");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("'relu'"), std::string::npos) << error.what();
  }
  EXPECT_THROW(make_norm("bacth", 4), ConfigError);
}

TEST(Layers, start_with_torchs_values_under_the_same_seed) {
  at::manual_seed(11);
  const Linear linear(6, 4);
  const Conv2d conv({.in = 3, .out = 4, .kernel = 3, .stride = 2, .padding = 1});
  for (const auto& item : linear.named_parameters()) {
    EXPECT_TRUE(at::equal(item.value(), fixture().at("linear." + item.key()))) << item.key();
  }
  for (const auto& item : conv.named_parameters()) {
    EXPECT_TRUE(at::equal(item.value(), fixture().at("conv." + item.key()))) << item.key();
  }
}

TEST(Layers, linear_and_convolution_equal_torch) {
  at::manual_seed(11);
  const Linear linear(6, 4);
  const Conv2d conv({.in = 3, .out = 4, .kernel = 3, .stride = 2, .padding = 1});
  EXPECT_TRUE(
      at::allclose(linear.forward(fixture().at("rows")), fixture().at("linear_out"), 1e-6, 1e-6));
  EXPECT_TRUE(
      at::allclose(conv.forward(fixture().at("images")), fixture().at("conv_out"), 1e-6, 1e-6));
}

TEST(Layers, group_norm_equals_torch) {
  GroupNorm norm(2, 4);
  set_affine(norm);
  EXPECT_TRUE(
      at::allclose(norm.forward(fixture().at("maps")), fixture().at("group_out"), 1e-6, 1e-6));
}

TEST(Layers, batch_norm_equals_torch_in_training_and_evaluation) {
  BatchNorm2d norm(4);
  set_affine(norm);
  const at::Tensor& maps = fixture().at("maps");
  EXPECT_TRUE(at::allclose(norm.forward(maps), fixture().at("batch_out"), 1e-6, 1e-6));
  const auto buffers = norm.named_buffers();
  EXPECT_TRUE(at::allclose(buffers["running_mean"], fixture().at("running_mean"), 1e-6, 1e-7));
  EXPECT_TRUE(at::allclose(buffers["running_var"], fixture().at("running_var"), 1e-6, 1e-7));
  EXPECT_EQ(buffers["num_batches_tracked"].item<int64_t>(), 1);
  norm.eval();
  EXPECT_TRUE(at::allclose(norm.forward(maps), fixture().at("batch_eval_out"), 1e-6, 1e-6));
  EXPECT_EQ(norm.named_buffers()["num_batches_tracked"].item<int64_t>(), 1);
}

TEST(Layers, work_under_autocast_in_both_16_bit_dtypes) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    for (const char* kind : {"batch", "group", "none"}) {
      Conv2d conv({.in = 3, .out = 8, .padding = 1});
      const Norm norm = make_norm(kind, 8);
      const at::Tensor x = at::randn({4, 3, 6, 6});
      const at::Tensor full = norm.forward(conv.forward(x));
      at::autocast::set_autocast_enabled(at::kCPU, true);
      at::autocast::set_autocast_dtype(at::kCPU, dtype);
      const at::Tensor half = norm.forward(conv.forward(x));
      at::autocast::set_autocast_enabled(at::kCPU, false);
      at::autocast::clear_cache();
      EXPECT_TRUE(at::allclose(half.to(at::kFloat), full, 0.05, 0.05)) << kind;
    }
  }
}

TEST(Layers, group_norm_takes_the_most_groups_that_divide_the_channels) {
  for (const int64_t channels : {1, 6, 7, 12, 32}) {
    const Norm norm = make_norm("group", channels);
    const at::Tensor out = norm.forward(at::randn({2, channels, 5, 5}) * 3 + 1);
    const int64_t groups = channels == 6 || channels == 12 ? 6 : channels == 32 ? 8 : channels;
    const at::Tensor means = out.detach().reshape({2, groups, -1}).mean(2);
    EXPECT_LT(means.abs().max().item<double>(), 1e-5) << channels;
  }
}

}  // namespace
}  // namespace tanren
