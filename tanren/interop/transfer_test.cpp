#include "tanren/interop/transfer.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/weights_file.h"
#include "tanren/formats/safetensors.h"
#include "tanren/model/convnet.h"
#include "tanren/model/registry.h"

#include <ATen/ATen.h>

namespace tanren {
namespace {

using testing::TemporaryFolder;

std::shared_ptr<Convnet> convnet(uint64_t seed, int64_t outputs) {
  at::manual_seed(seed);
  ModelOptions options;
  options.channels = {4, 8};
  options.norm = "batch";
  return std::make_shared<Convnet>(options, DataInfo{{1, 8, 8}, outputs});
}

TensorMap weights_of(const torch::nn::Module& module) {
  TensorMap tensors;
  for (const auto& item : module.named_parameters()) tensors.set(item.key(), item.value().detach());
  for (const auto& item : module.named_buffers()) tensors.set(item.key(), item.value());
  return tensors;
}

class Transfer : public ::testing::Test {
 protected:
  Transfer() {
    source_ = convnet(1, 5);
    options_.init_from = (folder_.path() / "source.pt").string();
    write_weights(options_.init_from, weights_of(*source_));
  }

  TemporaryFolder folder_;
  std::shared_ptr<Convnet> source_;
  ModelOptions options_;
};

TEST_F(Transfer, what_does_not_fit_is_listed_and_nothing_is_copied) {
  const auto module = convnet(2, 3);
  const at::Tensor before = module->named_parameters()["stem.conv.weight"].clone();
  const auto error = testing::error_of<CheckpointError>([&] { init_from_file(*module, options_); });
  TANREN_EXPECT_CONTAINS(error, "head.weight is [5, 8] Float, here [3, 8] Float");
  TANREN_EXPECT_CONTAINS(error, "model.init_skip");
  EXPECT_TRUE(at::equal(module->named_parameters()["stem.conv.weight"], before));
  options_.init_skip = {"haed.*"};
  testing::error_of<ConfigError>([&] { init_from_file(*module, options_); });
  options_.init_from = folder_.path().string();
  testing::error_of<CheckpointError>([&] { init_from_file(*module, options_); });
}

TEST_F(Transfer, a_new_head_keeps_its_initial_values_and_all_else_is_loaded) {
  const auto module = convnet(2, 3);
  const at::Tensor head = module->named_parameters()["head.weight"].clone();
  options_.init_skip = {"head.*"};
  const auto report = init_from_file(*module, options_);
  EXPECT_EQ(report.skipped, (std::vector<std::string>{"head.weight", "head.bias"}));
  EXPECT_EQ(report.ignored, report.skipped);
  EXPECT_TRUE(at::equal(module->named_parameters()["head.weight"], head));
  const auto mine = weights_of(*module);
  auto theirs = weights_of(*source_);
  theirs.set("head.weight", head + 1);
  theirs.set("head.bias", at::zeros({3}));
  for (const auto& [name, tensor] : mine) {
    EXPECT_EQ(at::equal(tensor, theirs.at(name)), name.rfind("head", 0) != 0) << name;
  }
  EXPECT_EQ(report.loaded, static_cast<int64_t>(mine.size()) - 2);
}

TEST_F(Transfer, a_file_of_the_model_alone_fits_below_an_appended_head_which_is_initialised) {
  ModelOptions model;
  model.kind = "convnet";
  model.channels = {4, 8};
  model.norm = "batch";
  model.outputs = 5;
  model.append_head = 2;
  const Task task = ModelRegistry().make(model, DataInfo{{1, 8, 8}, 2});
  options_.append_head = 2;
  const auto report = init_from_file(*task.module, options_);
  EXPECT_EQ(report.skipped, (std::vector<std::string>{"appended.weight", "appended.bias"}));
  EXPECT_TRUE(at::equal(task.module->named_parameters()["head.weight"],
                        source_->named_parameters()["head.weight"]));
  options_.append_head = 0;
  EXPECT_THROW(init_from_file(*task.module, options_), CheckpointError);
  model.kind = "convnet";
  model.outputs = 0;
  EXPECT_THROW(ModelRegistry().make(model, DataInfo{{1, 8, 8}, 2}), ConfigError);
}

struct TokenModel {
  const char *kind, *head;
};

Task token_task(const TokenModel& model, uint64_t seed, ModelOptions options, int64_t classes) {
  at::manual_seed(seed);
  options.kind = model.kind;
  options.task = "classify";
  options.num_layers = 1;
  options.hidden_size = 8;
  if (options.kind != "lstm") options.num_heads = 2;
  return ModelRegistry().make(options, {.input_shape = {6}, .outputs = classes, .vocab_size = 11});
}

TEST_F(Transfer, classifiers_of_tokens_take_another_number_of_classes_or_a_head_on_top) {
  for (const TokenModel& model :
       {TokenModel{"bert", "classifier"}, {"gpt2", "score"}, {"lstm", "head"}}) {
    SCOPED_TRACE(model.kind);
    const std::string head = model.head;
    const TensorMap five = weights_of(*token_task(model, 1, {}, 5).module);
    ModelOptions options;
    options.init_from = (folder_.path() / (head + ".safetensors")).string();
    write_weights(options.init_from, five);
    const Task three = token_task(model, 2, options, 3);
    TANREN_EXPECT_CONTAINS(
        testing::error_of<CheckpointError>([&] { init_from_file(*three.module, options); }),
        head + ".weight is [5, 8] Float, here [3, 8] Float");
    const at::Tensor fresh = three.module->named_parameters()[head + ".weight"].clone();
    options.init_skip = {head + ".*"};
    const auto report = init_from_file(*three.module, options);
    EXPECT_EQ(report.skipped.at(0), head + ".weight");
    EXPECT_TRUE(at::equal(three.module->named_parameters()[head + ".weight"], fresh));
    options.init_skip.clear();
    options.outputs = 5;
    options.append_head = 2;
    const Task two = token_task(model, 3, options, 2);
    EXPECT_EQ(init_from_file(*two.module, options).skipped,
              (std::vector<std::string>{"appended.weight", "appended.bias"}));
    for (const auto& item : two.module->named_parameters()) {
      const at::Tensor* source = five.find(item.key());
      EXPECT_EQ(source != nullptr, !item.key().starts_with("appended")) << item.key();
      EXPECT_TRUE(source == nullptr || at::equal(item.value(), *source)) << item.key();
    }
    Batch batch;
    batch.fields.set("inputs", at::ones({3, 6}, at::kLong));
    batch.fields.set("labels", at::zeros({3}, at::kLong));
    batch.ids = at::arange(3);
    two.module->eval();
    EXPECT_EQ(two.predict(batch).outputs.sizes(), (std::vector<int64_t>{3, 2}));
  }
}

TEST_F(Transfer, a_model_that_guesses_tokens_says_what_to_do_for_a_head) {
  ModelOptions options;
  options.kind = "gpt2";
  options.append_head = 2;
  options.num_layers = 1;
  options.num_heads = 2;
  options.hidden_size = 8;
  TANREN_EXPECT_CONTAINS(testing::error_of<ConfigError>([&] {
                           ModelRegistry().make(
                               options, {.input_shape = {6}, .outputs = 2, .vocab_size = 11});
                         }),
                         "set model.task = \"classify\"");
}

TEST_F(Transfer, names_are_renamed_and_narrow_weights_widened) {
  const auto body = folder_.path() / "body.safetensors";
  TensorMap narrow;
  for (const auto& [name, tensor] : weights_of(*source_)) {
    narrow.set("net.backbone." + name,
               tensor.is_floating_point() ? tensor.to(at::kBFloat16) : tensor);
  }
  write_weights(body, narrow);
  options_.init_from = body.string();
  options_.init_rename = {"net.backbone="};
  const auto module = convnet(2, 5);
  init_from_file(*module, options_);
  const auto theirs = source_->named_parameters()["head.weight"];
  EXPECT_TRUE(at::allclose(module->named_parameters()["head.weight"], theirs, 1e-2));
  EXPECT_EQ(module->named_parameters()["head.weight"].scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace tanren
