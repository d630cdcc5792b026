#include "tanren/base/safetensors.h"
#include "tanren/model/losses.h"
#include "tanren/model/resnet.h"
#include "tanren/model/vgg.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace tanren {
namespace {

const TensorMap& vision_fixture() {
  static const TensorMap file =
      read_safetensors(TANREN_SOURCE_DIR "/tests/fixtures/vision.safetensors").tensors;
  return file;
}

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

// torchvision's model from the same seed: names, sizes, outputs in both modes, gradients.
template <typename Model>
void expect_like_torchvision(const std::string& name, Model& model) {
  const auto& fixture = vision_fixture();
  std::string names;
  const auto parameters = model.named_parameters();
  const auto& text = fixture.at(name + "/names");
  const std::string wanted(reinterpret_cast<const char*>(text.template const_data_ptr<uint8_t>()),
                           static_cast<size_t>(text.numel()));
  for (const auto& item : parameters) {
    EXPECT_NE(("\n" + wanted + "\n").find("\n" + item.key() + "\n"), std::string::npos)
        << item.key();
  }
  const auto& sizes = fixture.at(name + "/num_parameters");
  ASSERT_EQ(static_cast<int64_t>(parameters.size()), sizes.numel());

  const auto dtype = fixture.at(name + "/logits").scalar_type();
  const bool wide = dtype == at::kDouble;
  const at::Tensor x = fixture.at(name + "/inputs").to(dtype);
  model.to(dtype);
  model.train();
  const at::Tensor logits = model.forward(x);
  EXPECT_LT(relative_error(logits.detach(), fixture.at(name + "/logits")), wide ? 1e-9 : 1e-5);
  const auto loss =
      at::cross_entropy_loss(logits, at::tensor({1, 4}, at::kLong), {}, at::Reduction::Sum);
  loss.backward();
  size_t i = 0;
  for (const auto& item : parameters) {
    EXPECT_EQ(item.value().numel(), sizes[static_cast<int64_t>(i)].template item<int64_t>());
    const auto norm =
        fixture.at(name + "/grad_norms")[static_cast<int64_t>(i++)].template item<double>();
    EXPECT_NEAR(item.value().grad().norm().template item<double>(), norm,
                (wide ? 1e-9 : 1e-4) * norm + 1e-6)
        << item.key();
  }
  model.eval();
  const at::NoGradGuard no_grad;
  EXPECT_LT(relative_error(model.forward(x), fixture.at(name + "/evaluated")), wide ? 1e-9 : 1e-5);
}

TEST(Vision, names_that_are_no_preset_are_nothing) {
  EXPECT_FALSE(resnet_shape("resnet19"));
  EXPECT_FALSE(vgg_shape("vgg"));
  EXPECT_FALSE(vgg_shape("_bn"));
  for (const auto& name : resnet_names()) EXPECT_TRUE(resnet_shape(name)) << name;
  for (const auto& name : vgg_names()) EXPECT_TRUE(vgg_shape(name)) << name;
}

TEST(Resnet, has_torchvisions_names_values_outputs_and_gradients) {
  for (const char* name : {"resnet18", "resnet50"}) {
    SCOPED_TRACE(name);
    at::manual_seed(3);
    auto shape = *resnet_shape(name);
    shape.outputs = 5;
    const auto model = std::make_shared<Resnet>(shape);
    expect_like_torchvision(name, *model);
  }
}

TEST(Vgg, has_torchvisions_names_values_outputs_and_gradients) {
  for (const char* name : {"vgg11_bn"}) {
    SCOPED_TRACE(name);
    at::manual_seed(3);
    auto shape = *vgg_shape(name);
    shape.outputs = 5;
    shape.dropout = 0;
    const auto model = std::make_shared<Vgg>(shape);
    expect_like_torchvision(name, *model);
  }
}

}  // namespace
}  // namespace tanren
