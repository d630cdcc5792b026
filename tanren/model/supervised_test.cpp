#include "tanren/model/supervised.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/model/layers.h"
#include "tanren/model/registry.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <new>

namespace tanren {
namespace {

const DataInfo kClasses{.input_shape = {4}, .outputs = 3};
const DataInfo kValues{.input_shape = {4}, .outputs = 2, .class_labels = false};

class OwnModule : public torch::nn::Module {
 public:
  OwnModule() : linear_(register_module("linear", std::make_shared<Linear>(4, 3))) {}
  at::Tensor forward(at::Tensor x) { return linear_->forward(x); }

 private:
  std::shared_ptr<Linear> linear_;
};

Batch batch_of(const at::Tensor& inputs, const at::Tensor& labels) {
  Batch batch;
  batch.fields.set("inputs", inputs);
  batch.fields.set("labels", labels);
  batch.ids = at::arange(inputs.size(0));
  return batch;
}

std::string refusal(const ModelOptions& options, const DataInfo& info) {
  try {
    ModelRegistry().make(options, info);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Registry, an_unknown_kind_names_the_nearest) {
  const auto message = refusal({.kind = "convnte"}, kClasses);
  EXPECT_NE(message.find("did you mean 'convnet'"), std::string::npos) << message;
}

TEST(Registry, calls_want_of_memory_no_fault_of_the_model) {
  ModelRegistry registry;
  registry.add("large",
               [](const ModelOptions&, const DataInfo&) -> Task { throw std::bad_alloc(); });
  EXPECT_THROW(registry.make({.kind = "large"}, kClasses), std::bad_alloc);
}

TEST(Registry, a_kind_is_registered_once) {
  ModelRegistry registry;
  const auto factory = [](const ModelOptions& options, const DataInfo& info) {
    return supervised(std::make_shared<OwnModule>(), options, info);
  };
  registry.add("own", factory);
  EXPECT_THROW(registry.add("own", factory), Error);
  EXPECT_THROW(registry.add("mlp", factory), Error);
  std::vector<std::string> kinds = {"bert",    "convnet",   "gpt2",   "lstm",        "mlp",
                                    "package", "pix2pixhd", "resnet", "torchscript", "vgg"};
  EXPECT_EQ(ModelRegistry().kinds(), kinds);
  kinds.insert(kinds.end() - 5, "own");
  EXPECT_EQ(registry.kinds(), kinds);
  const Task task = registry.make({.kind = "own"}, kClasses);
  EXPECT_NE(dynamic_cast<OwnModule*>(task.module.get()), nullptr);
}

TEST(Supervised, a_loss_that_does_not_fit_the_labels_is_a_config_error) {
  const ModelOptions mlp{.kind = "mlp"};
  const auto with = [&](const std::string& loss, int64_t outputs = 0, double smoothing = 0) {
    ModelOptions options = mlp;
    options.loss = loss;
    options.outputs = outputs;
    options.label_smoothing = smoothing;
    return options;
  };
  EXPECT_NE(refusal(with("cross_entropy"), kValues).find("needs class labels"), std::string::npos);
  EXPECT_NE(refusal(with("mse"), kClasses).find("needs values"), std::string::npos);
  EXPECT_NE(refusal(with("bce"), kClasses).find("two classes"), std::string::npos);
  EXPECT_NE(refusal(with("crossentropy"), kClasses).find("'cross_entropy'"), std::string::npos);
  EXPECT_NE(refusal(with("cross_entropy", 2), kClasses).find("at least 3"), std::string::npos);
  EXPECT_NE(refusal(with("mse", 5), kValues).find("outputs = 5"), std::string::npos);
  EXPECT_NE(refusal(with("cross_entropy", 0, 1.0), kClasses).find("label_smoothing"),
            std::string::npos);
  EXPECT_NE(refusal(with("mse", 0, 0.1), kValues).find("label_smoothing"), std::string::npos);
  EXPECT_EQ(refusal(with("cross_entropy", 7), kClasses), "");
  EXPECT_EQ(refusal(with("l1"), kValues), "");
}

TEST(Supervised, makes_one_phase_whose_term_is_the_summed_loss) {
  const Task task = ModelRegistry().make({.kind = "mlp", .hidden = {8}}, kClasses);
  ASSERT_EQ(task.phases.size(), 1u);
  ASSERT_EQ(task.phases[0].objectives.size(), 1u);
  const Batch batch = batch_of(at::randn({5, 4}), at::randint(3, {5}, at::kLong));
  const Terms terms = task.phases[0].forward(batch);
  ASSERT_EQ(terms.size(), 1u);
  const Prediction prediction = task.predict(batch);
  EXPECT_EQ(prediction.outputs.sizes(), at::IntArrayRef({5, 3}));
  EXPECT_TRUE(at::equal(prediction.targets, batch["labels"]));
  const at::Tensor rows = prediction.outputs.log_softmax(1).gather(1, batch["labels"].unsqueeze(1));
  EXPECT_NEAR(terms[0].sum.item<double>(), -rows.sum().item<double>(), 1e-5);
  EXPECT_NEAR(prediction.terms[0].sum.item<double>(), terms[0].sum.item<double>(), 1e-5);
  EXPECT_TRUE(matches_any(task.metrics, "accuracy"));
  EXPECT_FALSE(matches_any(task.metrics, "mse"));
  EXPECT_EQ(task.classes, 3);
}

TEST(Supervised, binary_classes_get_one_output_and_two_scores) {
  const DataInfo two{.input_shape = {4}, .outputs = 2};
  const Task task = ModelRegistry().make({.kind = "mlp", .loss = "bce"}, two);
  const Batch batch = batch_of(at::randn({6, 4}), at::randint(2, {6}, at::kLong));
  const at::Tensor scores = task.predict(batch).outputs;
  EXPECT_EQ(scores.sizes(), at::IntArrayRef({6, 2}));
  EXPECT_TRUE(at::equal(scores.select(1, 0), at::zeros({6})));
  EXPECT_EQ(task.module->named_parameters()["head.bias"].numel(), 1);
}

TEST(Supervised, a_smoothed_loss_has_no_perplexity_and_others_none_at_all) {
  const auto has_perplexity = [](const ModelOptions& options) {
    const DataInfo two{.input_shape = {4}, .outputs = 2};
    return matches_any(ModelRegistry().make(options, two).metrics, "perplexity");
  };
  EXPECT_FALSE(has_perplexity({.kind = "mlp", .label_smoothing = 0.1}));
  EXPECT_FALSE(has_perplexity({.kind = "mlp", .loss = "bce"}));
  EXPECT_TRUE(has_perplexity({.kind = "mlp"}));
}

TEST(Supervised, values_have_errors_and_no_accuracy) {
  const Task task = ModelRegistry().make({.kind = "mlp", .loss = "mse"}, kValues);
  EXPECT_FALSE(matches_any(task.metrics, "accuracy"));
  EXPECT_TRUE(matches_any(task.metrics, "r2"));
  EXPECT_EQ(task.classes, 0);
  const Prediction prediction = task.predict(batch_of(at::randn({3, 4}), at::randn({3, 2})));
  EXPECT_EQ(prediction.outputs.sizes(), at::IntArrayRef({3, 2}));
}

TEST(Supervised, inputs_follow_the_modules_dtype) {
  const Task task = ModelRegistry().make({.kind = "mlp"}, kClasses);
  const Batch batch = batch_of(at::randn({2, 4}), at::zeros({2}, at::kLong));
  task.module->to(at::kDouble);
  EXPECT_EQ(task.phases[0].forward(batch)[0].sum.scalar_type(), at::kDouble);
  task.module->to(at::kFloat);
  EXPECT_EQ(task.phases[0].forward(batch)[0].sum.scalar_type(), at::kFloat);
}

TEST(Supervised, keeps_an_own_module_alive_in_its_phase) {
  std::function<Terms(const Batch&)> forward;
  {
    const Task task = supervised(std::make_shared<OwnModule>(), ModelOptions{}, kClasses);
    forward = task.phases[0].forward;
  }
  EXPECT_TRUE(
      forward(batch_of(at::randn({2, 4}), at::zeros({2}, at::kLong)))[0].sum.requires_grad());
}

// The pictures of data.*.kind "pairs".
const DataInfo kPictures{
    .input_shape = {3, 4, 6}, .outputs = 24, .class_labels = false, .target_shape = {1, 4, 6}};

class OwnGenerator : public torch::nn::Module {
 public:
  OwnGenerator() : mix_(register_parameter("mix", at::rand({1, 3, 1, 1}))) {}
  at::Tensor forward(const at::Tensor& x) { return at::conv2d(x, mix_); }

 private:
  at::Tensor mix_;
};

TEST(Supervised, models_of_values_predict_pictures_where_targets_are_pictures) {
  const auto batch = batch_of(at::rand({2, 3, 4, 6}), at::rand({2, 1, 4, 6}));
  for (const char* loss : {"l1", "mse"}) {
    const ModelOptions options{.kind = "mlp", .hidden = {8}, .loss = loss};
    const Task own = supervised(std::make_shared<OwnGenerator>(), options, kPictures);
    for (const Task& task : {ModelRegistry().make(options, kPictures), own}) {
      const auto prediction = task.predict(batch);
      EXPECT_EQ(prediction.outputs.sizes(), batch["labels"].sizes());
      const auto errors = prediction.outputs - batch["labels"];
      const auto each = std::string(loss) == "l1" ? errors.abs() : errors.square();
      EXPECT_NEAR(prediction.terms[0].sum.item<double>(), each.mean({1, 2, 3}).sum().item<double>(),
                  1e-5);
      EXPECT_TRUE(matches_any(task.metrics, "psnr"));
      EXPECT_TRUE(matches_any(task.metrics, "mse"));
    }
  }
}

TEST(Supervised, pictures_are_no_classes_and_an_unfitting_model_is_refused_in_one_line) {
  EXPECT_NE(refusal({.kind = "mlp"}, kPictures).find("cross_entropy needs class labels"),
            std::string::npos);
  EXPECT_NE(refusal({.kind = "mlp", .outputs = 10, .loss = "l1"}, kPictures)
                .find("[model] outputs = 10: loss l1 on this data needs 24"),
            std::string::npos);
  EXPECT_NE(refusal({.kind = "gpt2", .loss = "l1"}, kPictures), "");
}

}  // namespace
}  // namespace tanren
