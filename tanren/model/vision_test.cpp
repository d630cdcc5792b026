#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/formats/safetensors.h"
#include "tanren/model/losses.h"
#include "tanren/model/registry.h"
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
    // The gradient of a bias before batch norm is 0 up to rounding, which differs between
    // processors.
    const double none = !wide && norm < 1e-5 ? 1e-5 : 1e-6;
    EXPECT_NEAR(item.value().grad().norm().template item<double>(), norm,
                (wide ? 1e-9 : 1e-4) * norm + none)
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

TEST(Vision, a_config_that_does_not_fit_is_refused_in_one_line) {
  const auto message = [](const ModelOptions& options, const DataInfo& info) {
    auto text = testing::error_of<ConfigError>([&] { ModelRegistry().make(options, info); });
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  };
  const DataInfo images{.input_shape = {3, 32, 32}, .outputs = 4};
  TANREN_EXPECT_CONTAINS(message({.kind = "resnet", .size = "resnet19"}, images),
                         "size 'resnet19' is unknown; did you mean 'resnet1");
  TANREN_EXPECT_CONTAINS(message({.kind = "vgg", .size = "vgg12"}, images), "did you mean 'vgg1");
  TANREN_EXPECT_CONTAINS(message({.kind = "resnet"}, {.input_shape = {64}, .outputs = 4}),
                         "resnet needs images [channels, height, width] or [height, width], inputs "
                         "have shape [64]");
  TANREN_EXPECT_CONTAINS(message({.kind = "vgg"}, {.input_shape = {3, 31, 40}, .outputs = 4}),
                         "needs 32 × 32 pixels or more, this data's have 31 × 40");
  TANREN_EXPECT_CONTAINS(message({.kind = "vgg", .outputs = 3}, images), "outputs = 3");
}

TEST(Vision, each_preset_of_a_config_has_torchvisions_number_of_parameters) {
  const std::vector<std::pair<std::string, int64_t>> published = {
      {"resnet18", 11689512},  {"resnet34", 21797672},  {"resnet50", 25557032},
      {"resnet101", 44549160}, {"resnet152", 60192808}, {"vgg11", 132863336},
      {"vgg13", 133047848},    {"vgg16", 138357544},    {"vgg19", 143667240},
      {"vgg11_bn", 132868840}, {"vgg13_bn", 133053736}, {"vgg16_bn", 138365992},
      {"vgg19_bn", 143678248}};
  const DataInfo images{.input_shape = {3, 224, 224}, .outputs = 1000};
  for (const auto& [size, count] : published) {
    const DryScope without_memory;
    const Task task = ModelRegistry().make(
        {.kind = size.substr(0, size.find_first_of("0123456789")), .size = size}, images);
    int64_t parameters = 0;
    for (const auto& parameter : task.module->parameters()) parameters += parameter.numel();
    EXPECT_EQ(parameters, count) << size;
  }
}

TEST(Vision, channels_and_classes_come_from_the_data) {
  const at::NoGradGuard no_grad;
  for (const DataInfo& info : {DataInfo{.input_shape = {1, 8, 8}, .outputs = 7},
                               DataInfo{.input_shape = {8, 8}, .outputs = 7}}) {
    const Task task = ModelRegistry().make({.kind = "resnet"}, info);
    EXPECT_EQ(task.module->named_parameters()["conv1.weight"].size(1), 1);
    std::vector<int64_t> sizes = info.input_shape;
    sizes.insert(sizes.begin(), 2);
    Batch batch;
    batch.fields.set("inputs", at::randn(sizes));
    batch.fields.set("labels", at::tensor({0, 6}, at::kLong));
    batch.ids = at::arange(2);
    EXPECT_EQ(task.predict(batch).outputs.sizes(), at::IntArrayRef({2, 7}));
  }
}

TEST(Vgg, model_dropout_is_the_probability_of_its_classifier) {
  const DataInfo images{.input_shape = {3, 32, 32}, .outputs = 2};
  const auto probability = [&](const std::optional<double>& dropout) {
    const DryScope without_memory;
    const Task task = ModelRegistry().make({.kind = "vgg", .dropout = dropout}, images);
    return std::dynamic_pointer_cast<Vgg>(task.module)->shape().dropout;
  };
  EXPECT_EQ(probability({}), 0.5);
  EXPECT_EQ(probability(0.25), 0.25);
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
