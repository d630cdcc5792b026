// Models of the zoo, cut into stages on one thread: losses, predictions, gradients and buffers are
// those of the whole model.
#include "tanren/base/random.h"
#include "tanren/blocks/block.h"
#include "tanren/model/registry.h"
#include "tanren/model/resnet.h"
#include "tanren/precision/autocast_scope.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tanren {
namespace {

constexpr int64_t kSamples = 4;

struct StagedModel {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor()> loss;
  std::function<at::Tensor()> predict;
  std::string recompute;  // pattern of the blocks that recomputation may be asked for
  std::string tied;       // the parameter that two blocks use; empty: none
};

StagedModel of_the_registry(const std::string& name, const ModelOptions& options,
                            const DataInfo& info, const Batch& batch) {
  const Task task = ModelRegistry().make(options, info);
  return {.name = name,
          .module = task.module,
          .loss = [task, batch] { return task.phases[0].forward(batch)[0].sum; },
          .predict = [task, batch] { return task.predict(batch).outputs; },
          .recompute = "",
          .tied = ""};
}

Batch batch_of(const at::Tensor& inputs, const at::Tensor& labels) {
  Batch batch;
  batch.fields.set("inputs", inputs);
  batch.fields.set("labels", labels);
  batch.ids = at::arange(kSamples);
  return batch;
}

StagedModel gpt2_model(const std::string& task) {
  const int64_t classes = task == "classify" ? 5 : 61;
  const std::vector<int64_t> labels =
      task == "classify" ? std::vector<int64_t>{kSamples} : std::vector<int64_t>{kSamples, 13};
  StagedModel model = of_the_registry("gpt2 " + task,
                                      {.kind = "gpt2",
                                       .dropout = 0.1,
                                       .num_layers = 3,
                                       .num_heads = 3,
                                       .hidden_size = 24,
                                       .intermediate_size = 80,
                                       .context_length = 16,
                                       .task = task},
                                      {.input_shape = {13}, .outputs = classes, .vocab_size = 61},
                                      batch_of(at::randint(61, {kSamples, 13}, at::kLong),
                                               at::randint(classes, labels, at::kLong)));
  model.recompute = "transformer.h.*";
  if (task != "classify") model.tied = "transformer.wte.weight";
  return model;
}

StagedModel bert_model() {
  StagedModel model = of_the_registry(
      "bert",
      {.kind = "bert",
       .dropout = 0.1,
       .num_layers = 2,
       .num_heads = 3,
       .hidden_size = 24,
       .intermediate_size = 40,
       .context_length = 16,
       .task = "classify"},
      {.input_shape = {11}, .outputs = 5, .vocab_size = 37},
      batch_of(at::randint(37, {kSamples, 11}, at::kLong), at::randint(5, {kSamples}, at::kLong)));
  model.recompute = "bert.encoder.layer.*";
  return model;
}

StagedModel resnet_model() {
  const auto resnet = std::make_shared<Resnet>(ResnetShape{.blocks = {1, 1, 1, 1}, .outputs = 7});
  const at::Tensor pictures = at::randn({kSamples, 3, 32, 32});
  const auto forward = [resnet, pictures] { return resnet->forward(pictures); };
  return {.name = "resnet",
          .module = resnet,
          .loss = [forward] { return forward().to(at::kFloat).pow(2).sum(); },
          .predict = forward,
          .recompute = "layer*",
          .tied = ""};
}

std::vector<StagedModel> staged_models() {
  at::manual_seed(3);
  return {gpt2_model("next_token"), gpt2_model("classify"), bert_model(), resnet_model()};
}

struct StageMode {
  PrecisionPlan precision;
  bool recomputes = false;

  std::string text() const {
    return std::string(precision.mode == Mode::bf16 ? "bf16" : "fp32") +
           (recomputes ? ", recomputed" : "");
  }
};

std::vector<std::string> blocks_of(const StagedModel& model) {
  const BlockTrailScope trail;
  const RandomScope random(3, 5, at::arange(kSamples));
  model.loss();
  std::vector<std::string> names;
  for (const auto& passage : block_trail().passages) names.push_back(block_name(passage.id));
  return names;
}

// Stages of nearly as many blocks each.
std::vector<StageBlocks> cut_into(size_t count, const std::vector<std::string>& blocks) {
  std::vector<StageBlocks> stages;
  for (size_t i = 0; i < count; ++i) {
    stages.push_back({.blocks = blocks,
                      .begin = i * blocks.size() / count,
                      .end = (i + 1) * blocks.size() / count});
  }
  return stages;
}

struct ModelNumbers {
  at::Tensor result;
  std::vector<at::Tensor> gradients, buffers;
};

// Runs `forward`, the model's loss or predictions, in these stages; none: in one piece. The buffers
// begin as `buffers`.
ModelNumbers numbers_of(const StagedModel& model, const std::function<at::Tensor()>& forward,
                        const std::vector<StageBlocks>& stages, const StageMode& mode,
                        const std::vector<at::Tensor>& buffers) {
  const auto own_buffers = model.module->buffers();
  {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < buffers.size(); ++i) own_buffers[i].copy_(buffers[i]);
  }
  for (auto& parameter : model.module->parameters()) parameter.mutable_grad().reset();

  ModelNumbers numbers;
  const WindowScope window(mode.precision);
  const auto pass = [&] {
    const RandomScope random(3, 5, at::arange(kSamples));
    std::optional<RecomputeScope> recompute;
    if (mode.recomputes) recompute.emplace(std::vector<std::string>{model.recompute}, own_buffers);
    const AutocastScope autocast(at::kCPU, mode.precision);
    numbers.result = forward();
  };
  std::vector<at::Tensor> received, sent;
  for (const StageBlocks& stage : stages) {
    received.emplace_back();
    if (!sent.empty()) {
      const at::Tensor& last = sent.back();
      received.back() = last.detach().clone().requires_grad_(last.requires_grad());
    }
    StageScope scope(stage, received.back());
    sent.push_back(run_stage(scope, pass).output);
  }
  if (stages.empty()) pass();
  if (at::GradMode::is_enabled()) {
    torch::autograd::backward({numbers.result}, {});
    for (size_t i = received.size(); i-- > 1;) {
      torch::autograd::backward({sent[i - 1]}, {received[i].grad()});
    }
  }
  for (const auto& parameter : model.module->parameters()) {
    numbers.gradients.push_back(parameter.grad());
  }
  for (const auto& buffer : own_buffers) numbers.buffers.push_back(buffer.clone());
  return numbers;
}

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const auto& tensor : tensors) copies.push_back(tensor.clone());
  return copies;
}

void expect_same_gradients(const StagedModel& model, const ModelNumbers& staged,
                           const ModelNumbers& whole, const std::string& where) {
  size_t i = 0;
  for (const auto& item : model.module->named_parameters()) {
    const at::Tensor& expected = whole.gradients[i];
    const at::Tensor& gradient = staged.gradients[i++];
    ASSERT_TRUE(expected.defined() && gradient.defined()) << where << ": " << item.key();
    if (item.key() == model.tied) {  // the sum of two blocks' parts
      const double error = (gradient - expected).norm().item<double>();
      EXPECT_LT(error, 1e-6 * expected.norm().item<double>()) << where << ": " << item.key();
    } else {
      EXPECT_TRUE(at::equal(gradient, expected)) << where << ": " << item.key();
    }
  }
}

TEST(StagedModels, train_with_the_whole_models_loss_gradients_and_buffers_bitwise) {
  for (const StagedModel& model : staged_models()) {
    const auto buffers = copies_of(model.module->buffers());
    const auto blocks = blocks_of(model);
    ASSERT_GE(blocks.size(), 5u) << model.name;
    for (const Mode precision : {Mode::fp32, Mode::bf16}) {
      for (const bool recomputes : {false, true}) {
        const StageMode mode{{.mode = precision}, recomputes};
        const ModelNumbers whole = numbers_of(model, model.loss, {}, mode, buffers);
        for (const size_t count : {size_t{1}, size_t{2}, size_t{3}, size_t{4}, blocks.size()}) {
          const std::string where =
              model.name + " in " + std::to_string(count) + " stages, " + mode.text();
          const ModelNumbers staged =
              numbers_of(model, model.loss, cut_into(count, blocks), mode, buffers);
          EXPECT_TRUE(at::equal(staged.result, whole.result)) << where;
          expect_same_gradients(model, staged, whole, where);
          for (size_t i = 0; i < whole.buffers.size(); ++i) {
            EXPECT_TRUE(at::equal(staged.buffers[i], whole.buffers[i])) << where << ", " << i;
          }
        }
      }
    }
  }
}

TEST(StagedModels, predict_what_the_whole_model_predicts) {
  const at::NoGradGuard no_grad;
  for (const StagedModel& model : staged_models()) {
    const auto blocks = blocks_of(model);
    const auto buffers = copies_of(model.module->buffers());
    model.module->eval();
    for (const Mode precision : {Mode::fp32, Mode::bf16}) {
      const StageMode mode{.precision = {.mode = precision}};
      const ModelNumbers whole = numbers_of(model, model.predict, {}, mode, buffers);
      const ModelNumbers staged =
          numbers_of(model, model.predict, cut_into(3, blocks), mode, buffers);
      EXPECT_TRUE(at::equal(staged.result, whole.result)) << model.name << ", " << mode.text();
    }
  }
}

}  // namespace
}  // namespace tanren
