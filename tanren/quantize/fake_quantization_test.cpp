#include "tanren/quantize/fake_quantization.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/ops/fake_quantize.h"
#include "tanren/quantize/quantized_names.h"
#include "tanren/quantize/quantized_task.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace tanren {
namespace {

using testing::error_of;

constexpr int64_t kWords = 6, kWidth = 8;

// Words → rows → a projection [in, out] → torch's linear → a table of positions, read by narrow.
struct FakedModel : torch::nn::Module {
  torch::nn::Embedding words{torch::nn::EmbeddingOptions(kWords, kWidth).padding_idx(0)};
  torch::nn::Linear head{kWidth, 3};
  at::Tensor kernel, positions;

  FakedModel() {
    register_module("words", words);
    kernel = register_parameter("kernel", at::randn({kWidth, kWidth}));
    positions = register_parameter("positions", at::randn({5, kWidth}));
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& tokens) {
    const at::Tensor rows = words(tokens) + positions.narrow(0, 0, tokens.size(1));
    return head(at::matmul(rows, kernel).relu());
  }
};

template <class Model>
Task task_of(const std::shared_ptr<Model>& model) {
  Task task;
  task.module = model;
  const auto forward = [model](const Batch& batch) {
    const at::Tensor y = model->forward(batch["inputs"]);
    return Prediction{{{"loss", y.square().sum()}}, y, batch["inputs"]};
  };
  task.phases = {
      PhaseSpec{.forward = [forward](const Batch& batch) { return forward(batch).terms; }}};
  task.predict = forward;
  return task;
}

Batch some_words(int64_t samples = 2) {
  Batch batch;
  batch.fields.set("inputs", at::arange(samples * 4).view({samples, 4}).remainder(kWords));
  batch.ids = at::arange(samples);
  return batch;
}

FakeLayer layer_named(const FakeQuantization& how, const std::string& name) {
  for (const FakeLayer& layer : how.layers) {
    if (layer.name == name) return layer;
  }
  return {};
}

InputScales known_scales() {
  return {{"kernel", {.scale = 0.03F, .zero_point = 120}},
          {"head.weight", {.scale = 0.05F, .zero_point = 0}}};
}

TEST(FakeQuantization, finds_weights_with_the_elements_that_a_sample_brings) {
  const Task task = task_of(std::make_shared<FakedModel>());
  for (const int64_t samples : {1, 2}) {
    const auto how =
        find_fake_quantization(task, some_words(samples), QuantizeScheme::calibrated, {});
    ASSERT_EQ(how.layers.size(), 3u);
    EXPECT_EQ(layer_named(how, "words.weight").reader, WeightReader::embedding);
    EXPECT_EQ(layer_named(how, "kernel").reader, WeightReader::projection);
    EXPECT_EQ(layer_named(how, "head.weight").reader, WeightReader::linear);
    EXPECT_EQ(layer_named(how, "kernel").input_elements, 4 * kWidth);
    EXPECT_EQ(layer_named(how, "head.weight").input_elements, 4 * kWidth);
    EXPECT_EQ(how.kept, (std::map<std::string, std::string>{{"positions", "narrow reads it"}}));
  }
}

TEST(FakeQuantization, answers_with_rounded_weights_and_inputs_and_gradients_for_the_scales) {
  at::manual_seed(2);
  const auto model = std::make_shared<FakedModel>();
  const Task plain = task_of(model);
  const auto how = find_fake_quantization(plain, some_words(), QuantizeScheme::calibrated, {});
  const Task task = fake_quantized(plain, how);
  set_input_scales(*model, how, known_scales());
  const auto named = model->named_parameters();
  const at::Tensor tokens = some_words()["inputs"];
  task.phases.front().forward(some_words()).front().sum.backward();

  const at::Tensor words = model->words->weight, head = model->head->weight;
  const auto own = [](const at::Tensor& tensor) {
    return tensor.detach().clone().requires_grad_(true);
  };
  const at::Tensor own_words = own(words), own_kernel = own(model->kernel), own_head = own(head);
  const at::Tensor of_kernel = own(named["kernel_input_scale"]);
  const at::Tensor of_head = own(named["head.input_scale"]);
  const at::Tensor rows = at::embedding(fake_quantize_weight(own_words), tokens, 0) +
                          model->positions.detach().narrow(0, 0, 4);
  const at::Tensor hidden = at::matmul(fake_quantize(rows, of_kernel, {0, 255, 120}, 4 * kWidth),
                                       fake_quantize_weight(own_kernel.t()).t())
                                .relu();
  const at::Tensor y = at::linear(fake_quantize(hidden, of_head, {0, 255, 0}, 4 * kWidth),
                                  fake_quantize_weight(own_head), model->head->bias.detach());
  y.square().sum().backward();
  EXPECT_TRUE(at::allclose(task.predict(some_words()).outputs, y, 1e-5, 1e-6));
  for (const auto& [given, wanted] :
       {std::pair(words, own_words), std::pair(model->kernel, own_kernel),
        std::pair(head, own_head), std::pair(named["kernel_input_scale"], of_kernel),
        std::pair(named["head.input_scale"], of_head)}) {
    ASSERT_TRUE(given.grad().defined());
    EXPECT_TRUE(at::allclose(given.grad(), wanted.grad(), 1e-4, 1e-5)) << given.sizes();
  }
  EXPECT_EQ(words.grad()[0].abs().sum().item<float>(), 0);  // the padding's row
  EXPECT_NE(words.grad()[1].abs().sum().item<float>(), 0);
}

TEST(FakeQuantization, computes_what_its_8_bit_model_does) {
  for (const QuantizeScheme scheme :
       {QuantizeScheme::weights, QuantizeScheme::dynamic, QuantizeScheme::calibrated}) {
    at::manual_seed(3);
    const auto model = std::make_shared<FakedModel>(), other = std::make_shared<FakedModel>();
    const Task plain = task_of(model);
    const auto how = find_fake_quantization(plain, some_words(), scheme, {});
    const Task task = fake_quantized(plain, how);
    if (scheme == QuantizeScheme::calibrated) set_input_scales(*model, how, known_scales());
    const at::NoGradGuard no_grad;
    if (scheme == QuantizeScheme::calibrated) {
      model->named_parameters()["kernel_input_scale"].neg_();  // an update took it below 0
    }
    TensorMap tensors;
    for (const auto& item : model->named_parameters()) tensors.set(item.key(), item.value());
    for (const auto& item : model->named_buffers()) tensors.set(item.key(), item.value());
    const TensorMap weights = without_names(tensors, input_scale_names(how));
    for (auto& item : other->named_parameters()) item.value().copy_(weights.at(item.key()));
    EXPECT_EQ(weights.size(), other->named_parameters().size());
    const Task answers = quantized(task_of(other), learned_parameters(tensors, how));
    const at::Tensor trained = task.predict(some_words()).outputs;
    EXPECT_TRUE(at::allclose(answers.predict(some_words()).outputs, trained, 1e-4, 1e-5))
        << static_cast<int>(scheme);
  }
}

// The numbers of a training that reads a weight unrounded would not be those of its 8-bit model.
TEST(FakeQuantization, leaves_a_weight_that_the_training_reads_in_another_form_and_says_so) {
  const auto model = std::make_shared<FakedModel>();
  Task plain = task_of(model);
  plain.phases.front().forward = [model](const Batch& batch) {
    const at::Tensor penalty = model->kernel.pow(2).sum();
    return Terms{{"loss", model->forward(batch["inputs"]).square().sum() + penalty}};
  };
  const auto find = [&](const std::vector<std::string>& keep) {
    return find_fake_quantization(plain, some_words(), QuantizeScheme::calibrated, keep);
  };
  const auto how = find({});
  EXPECT_EQ(layer_named(how, "head.weight").reader, WeightReader::linear);
  EXPECT_EQ(layer_named(how, "kernel").name, "");
  EXPECT_EQ(how.kept.at("kernel"), "pow reads it in training");
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] {
                           (void)find({"head.*", "words.*"});
                         }),
                         "(kernel: pow reads it in training)");
}

// For example a weight that is pruned during training.
TEST(FakeQuantization, leaves_a_weight_that_training_mode_reads_in_another_form) {
  const auto model = std::make_shared<FakedModel>();
  const at::Tensor calls = model->register_buffer("calls", at::zeros({1}));
  const at::Tensor mask = at::ones({3, kWidth});
  Task plain = task_of(model);
  plain.phases.front().forward = [&](const Batch& batch) {
    const bool trains = model->is_training();
    if (trains) calls.add_(at::rand({1}) + 1);
    const at::Tensor weight = model->head->weight;
    const at::Tensor rows = at::matmul(model->words(batch["inputs"]), model->kernel);
    return Terms{{"loss", at::linear(rows, trains ? weight * mask : weight).sum()}};
  };
  at::manual_seed(4);
  const auto how = find_fake_quantization(plain, some_words(), QuantizeScheme::calibrated, {});
  const at::Tensor drawn = at::rand({3});
  EXPECT_EQ(how.kept.at("head.weight"), "mul reads it in training");
  EXPECT_EQ(layer_named(how, "kernel").reader, WeightReader::projection);
  EXPECT_TRUE(model->is_training());
  EXPECT_EQ(calls.item<float>(), 0);
  at::manual_seed(4);
  EXPECT_TRUE(at::equal(at::rand({3}), drawn));
}

TEST(FakeQuantization, throws_where_a_forward_reads_a_rounded_weight_in_another_form) {
  const auto model = std::make_shared<FakedModel>();
  Task plain = task_of(model);
  bool in_another_form = false;  // set only after the dry run
  plain.phases.front().forward = [&](const Batch& batch) {
    const at::Tensor y = model->forward(batch["inputs"]);
    const at::Tensor wide = at::zeros({2, kWidth});
    if (!in_another_form) return Terms{{"loss", y.sum()}};
    return Terms{{"loss", y.sum() + at::matmul(wide, model->kernel.t()).sum()}};
  };
  const auto how = find_fake_quantization(plain, some_words(), QuantizeScheme::weights, {});
  const Task task = fake_quantized(plain, how);
  EXPECT_NO_THROW(task.phases.front().forward(some_words()));
  in_another_form = true;
  TANREN_EXPECT_CONTAINS(
      error_of<Error>([&] { task.phases.front().forward(some_words()); }),
      "kernel is read by linear, which no rounded weight answers, in a training that rounds it for "
      "projection");
}

struct NormedImage : torch::nn::Module {
  torch::nn::Conv2d convolution{torch::nn::Conv2dOptions(2, 3, 3)};
  torch::nn::BatchNorm2d norm{3};

  NormedImage() {
    register_module("convolution", convolution);
    register_module("norm", norm);
  }
  at::Tensor forward(const at::Tensor& x) { return norm(convolution(x)); }
};

TEST(FakeQuantization, keeps_batch_norms_in_eval_mode_and_reads_zero_points_anew) {
  const auto model = std::make_shared<NormedImage>();
  const Task plain = task_of(model);
  Batch images;
  images.fields.set("inputs", at::randn({2, 2, 6, 6}));
  images.ids = at::arange(2);
  const auto how = find_fake_quantization(plain, images, QuantizeScheme::calibrated, {});
  EXPECT_EQ(how.num_norms, 1);
  const Task task = fake_quantized(plain, how);
  model->train();
  task.phases.front().forward(images);
  EXPECT_FALSE(model->norm->is_training());
  EXPECT_TRUE(model->convolution->is_training());
  EXPECT_EQ(model->norm->named_buffers()["num_batches_tracked"].item<int64_t>(), 0);
  EXPECT_EQ(plain.facts.couples_samples, std::nullopt);
  EXPECT_EQ(task.facts.couples_samples, std::optional(false));
  Task contrastive = task_of(std::make_shared<NormedImage>());
  contrastive.facts.couples_samples = true;  // its loss compares samples with each other
  EXPECT_EQ(fake_quantized(contrastive, how).facts.couples_samples, std::optional(true));
  set_input_scales(*model, how, {{"convolution.weight", {.scale = 0.02F, .zero_point = 128}}});
  const at::Tensor before = task.predict(images).outputs;
  set_input_scales(*model, how, {{"convolution.weight", {.scale = 0.02F, .zero_point = 255}}});
  EXPECT_FALSE(at::equal(task.predict(images).outputs, before));
  const auto dynamic = [&] {
    (void)find_fake_quantization(plain, images, QuantizeScheme::dynamic, {});
  };
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>(dynamic), "no weight of the model can become 8-bit");
}

TEST(FakeQuantization, refuses_a_name_that_the_model_has_and_leaves_out_weights_that_it_lacks) {
  const auto taken = std::make_shared<FakedModel>();
  const auto how =
      find_fake_quantization(task_of(taken), some_words(), QuantizeScheme::calibrated, {});
  taken->register_parameter("kernel_input_scale", at::ones({1}));
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { (void)fake_quantized(task_of(taken), how); }),
                         "a tensor kernel_input_scale of its own");
  const auto image = std::make_shared<NormedImage>();
  EXPECT_EQ(fake_quantized(task_of(image), how).module->named_parameters().size(), 4u);
}

// A model's own tensors may have such names.
TEST(FakeQuantization, tells_its_own_scales_from_a_models) {
  const auto model = std::make_shared<FakedModel>();
  const auto body = model->register_module("body", std::make_shared<torch::nn::Module>());
  body->register_parameter("input_scale", at::ones({1}));
  body->register_buffer("input_zero_point", at::zeros({1}, at::kLong));
  const auto how =
      find_fake_quantization(task_of(model), some_words(), QuantizeScheme::calibrated, {});
  const std::set<std::string> ours = {"kernel_input_scale", "kernel_input_zero_point",
                                      "head.input_scale", "head.input_zero_point"};
  EXPECT_EQ(input_scale_names(how), ours);
  EXPECT_TRUE(input_scale_names(FakeQuantization()).empty());
  (void)fake_quantized(task_of(model), how);
  TensorMap tensors;
  for (const auto& item : model->named_parameters()) tensors.set(item.key(), item.value());
  for (const auto& item : model->named_buffers()) tensors.set(item.key(), item.value());
  EXPECT_EQ(input_scale_names(tensors), ours);
  EXPECT_EQ(input_scale_names(tensors, {"kernel"}).size(), 2u);
  EXPECT_TRUE(without_names(tensors, ours).contains("body.input_scale"));
  EXPECT_FALSE(without_names(tensors, ours).contains("head.input_scale"));
}

TEST(QuantizedNames, begin_as_the_weights) {
  EXPECT_EQ(quantized_names("weight").input_scale, "input_scale");
  EXPECT_EQ(quantized_names("a.weight").input_scale, "a.input_scale");
  EXPECT_EQ(quantized_names("a.kernel").input_zero_point, "a.kernel_input_zero_point");
}

}  // namespace
}  // namespace tanren
