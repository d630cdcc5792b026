#include "tanren/interop/module_class.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/formats/safetensors.h"
#include "tanren/interop/pretrained.h"
#include "tanren/model/bert.h"
#include "tanren/model/registry.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace tanren::module_class_test {
namespace {

const std::string kFixtures = TANREN_SOURCE_DIR "/tests/fixtures/";

std::string refusal(const std::string& file) {
  return testing::error_of<ConfigError>([&] { options_of_module(kFixtures + file, {}); });
}

TEST(ModuleClass, that_is_not_known_or_no_module_is_refused_with_its_name) {
  TANREN_EXPECT_CONTAINS(refusal("pt/module.pt"), "class __main__.Small");
  TANREN_EXPECT_CONTAINS(refusal("pt/state_dict.pt"), "holds a state_dict, which does not say");
  TANREN_EXPECT_CONTAINS(refusal("pt/torchvision_module.pt"), "no known size");
  EXPECT_FALSE(is_module_file("resnet50"));
  EXPECT_FALSE(is_module_file(kFixtures + "pt"));
}

TEST(ModuleClass, of_transformers_is_built_by_its_own_config_and_gives_its_scores) {
  ModelOptions options;
  options.from_hf = kFixtures + "pt/transformers_module.pt";
  const Pretrained pretrained = resolve_model(options);
  EXPECT_EQ(pretrained.model.kind, "bert");
  EXPECT_EQ(pretrained.model.num_layers, 2);
  EXPECT_EQ(pretrained.model.activation, "relu");
  const Task task =
      ModelRegistry().make(pretrained.model, {.input_shape = {7}, .outputs = 4, .vocab_size = 23});
  task.module->eval();
  EXPECT_TRUE(init_from_pretrained(*task.module, pretrained).skipped.empty());
  const auto expected = read_safetensors(kFixtures + "hf/bert/expected.safetensors").tensors;
  const at::NoGradGuard no_grad;
  const auto model = std::dynamic_pointer_cast<Bert>(task.module);
  EXPECT_TRUE(at::allclose(model->forward({expected.at("inputs"), {}, {}}), expected.at("logits"),
                           1e-5, 1e-6));
}

TEST(ModuleClass, of_torchvision_is_the_model_that_its_layers_make) {
  ModelOptions options;
  options.from_hf = kFixtures + "pt/resnet18_module.pt";
  const Pretrained pretrained = resolve_model(options);
  EXPECT_EQ(pretrained.model.kind, "resnet");
  EXPECT_EQ(pretrained.model.size, "resnet18");
  const Task task =
      ModelRegistry().make(pretrained.model, {.input_shape = {3, 32, 32}, .outputs = 3});
  const auto report = init_from_pretrained(*task.module, pretrained);
  EXPECT_EQ(report.loaded, 122);
  EXPECT_TRUE(report.skipped.empty());
  const auto vgg = options_of_module(kFixtures + "pt/vgg11_bn_module.pt", {});
  EXPECT_EQ(vgg.kind, "vgg");
  EXPECT_EQ(vgg.size, "vgg11_bn");
}

}  // namespace
}  // namespace tanren::module_class_test
