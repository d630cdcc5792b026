// Models with 8-bit weights, which are found and answered without any code in the models. They
// equal, bit by bit, the same models whose operators are answered by the plain references.
#include "tanren/ops/quantized_convolution.h"
#include "tanren/quantize/quantize_scope.h"
#include "tanren/quantize/quantized_task.h"
#include "tanren/quantize/readers.h"
#include "tanren/quantize/replaced.h"
#include "tests/support/tiny_run.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/ScopeExit.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tanren::testing {
namespace {

constexpr int64_t kRows = 4;

struct Model {
  std::string name;
  std::function<Task()> make;  // the same weights each time
  Batch batch;
  std::vector<std::string> stay;  // matrices that no 8-bit operator reads
};

Batch labelled(const at::Tensor& inputs, const at::Tensor& labels) {
  Batch batch;
  batch.fields.set("inputs", inputs);
  batch.fields.set("labels", labels);
  batch.ids = at::arange(inputs.size(0));
  return batch;
}

Model of_the_zoo(const ModelOptions& options, const DataInfo& info, const Batch& batch,
                 const std::vector<std::string>& stay) {
  const auto make = [options, info] {
    at::manual_seed(3);
    Task task = ModelRegistry().make(options, info);
    task.module->eval();
    return task;
  };
  return {options.kind, make, batch, stay};
}

Model gpt2_model() {
  return of_the_zoo(
      {.kind = "gpt2",
       .loss_chunk = 8,
       .num_layers = 2,
       .num_heads = 3,
       .hidden_size = 24,
       .intermediate_size = 80,
       .context_length = 16},
      {.input_shape = {13}, .outputs = 61, .vocab_size = 61},
      labelled(at::randint(61, {kRows, 13}, at::kLong), at::randint(61, {kRows, 13}, at::kLong)),
      {"transformer.wpe.weight"});
}

Model bert_model(const std::string& task) {
  const std::vector<int64_t> labels =
      task == "classify" ? std::vector<int64_t>{kRows} : std::vector<int64_t>{kRows, 11};
  return of_the_zoo(
      {.kind = "bert",
       .num_layers = 2,
       .num_heads = 3,
       .hidden_size = 24,
       .intermediate_size = 40,
       .context_length = 16,
       .task = task},
      {.input_shape = {11}, .outputs = 5, .vocab_size = 37},
      labelled(at::randint(37, {kRows, 11}, at::kLong), at::randint(5, labels, at::kLong)),
      {"bert.embeddings.position_embeddings.weight"});
}

Model convnet_model() {
  return of_the_zoo({.kind = "convnet", .channels = {4, 8}},
                    {.input_shape = {1, 8, 8}, .outputs = 5},
                    labelled(at::randn({kRows, 1, 8, 8}), at::randint(5, {kRows}, at::kLong)), {});
}

Model resnet_model() {
  return of_the_zoo(
      {.kind = "resnet", .size = "resnet18"}, {.input_shape = {3, 32, 32}, .outputs = 5},
      labelled(at::randn({kRows, 3, 32, 32}), at::randint(5, {kRows}, at::kLong)), {});
}

// A user's module, whose view() needs a contiguous result of the convolution.
struct OwnNet : torch::nn::Module {
  OwnNet()
      : conv(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 6, 3)))),
        head(register_module("head", torch::nn::Linear(6 * 36, 5))) {}
  at::Tensor forward(const at::Tensor& x) {
    return head->forward(conv->forward(x).relu().view({x.size(0), -1}));
  }
  torch::nn::Conv2d conv;
  torch::nn::Linear head;
};

Model own_model() {
  const auto make = [] {
    at::manual_seed(3);
    const auto net = std::make_shared<OwnNet>();
    Task task;
    task.module = net;
    task.predict = [net](const Batch& batch) {
      const at::Tensor y = net->forward(batch["inputs"]);
      return Prediction{{{"sum", y.sum()}}, y, batch["labels"]};
    };
    return task;
  };
  return {
      "own", make, labelled(at::randn({kRows, 2, 8, 8}), at::randint(5, {kRows}, at::kLong)), {}};
}

std::vector<Model> models() {
  at::manual_seed(5);
  return {gpt2_model(),    bert_model("classify"), bert_model("masked_lm"),
          convnet_model(), resnet_model(),         own_model()};
}

// The largest input of each convolution.
class LargestInputs final : public OperatorListener {
 public:
  Answer conv2d(const at::Tensor& input, const at::Tensor& weight, const Bias&,
                const Convolution&) override {
    of[weight.unsafeGetTensorImpl()] = input.abs().max().item<float>();
    return {};
  }
  std::map<const at::TensorImpl*, float> of;
};

// Quantises all parameters that can be quantised.
QuantizedParameters quantised(const Task& task, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const auto largest = std::make_shared<LargestInputs>();
  {
    const OperatorListenerScope heard(largest);
    task.predict(batch);
  }
  const auto named = task.module->named_parameters();
  QuantizedParameters parameters;
  for (const ParameterReaders& of : find_readers(task, batch)) {
    if (!of.reader) continue;
    const at::Tensor& weight = named[of.name];
    std::optional<InputScale> input;
    if (*of.reader == WeightReader::convolution) {
      input = InputScale{largest->of.at(weight.unsafeGetTensorImpl()) / 127, 128};
    }
    const bool turns = *of.reader == WeightReader::projection;
    parameters[of.name] = {quantize_weight(turns ? weight.t() : weight, of.name), *of.reader,
                           input};
  }
  return parameters;
}

// Answers by the plain references, for a module that still has its weights.
class PlainAnswers final : public OperatorListener {
 public:
  PlainAnswers(const Task& task, const QuantizedParameters& parameters) {
    for (const auto& item : task.module->named_parameters()) {
      const auto found = parameters.find(item.key());
      if (found == parameters.end()) continue;
      of_[item.value().storage().unsafeGetStorageImpl()] = found->second;
    }
  }

  Answer linear(const at::Tensor& input, const at::Tensor& weight, const Bias& bias) override {
    return product(input, weight, bias ? *bias : at::Tensor());
  }
  Answer addmm(const at::Tensor& added, const at::Tensor& left, const at::Tensor& right,
               const at::Scalar&, const at::Scalar&) override {
    return product(left, right, added);
  }
  Answer matmul(const at::Tensor& left, const at::Tensor& right) override {
    return product(left, right, {});
  }
  Answer conv2d(const at::Tensor& input, const at::Tensor& weight, const Bias& bias,
                const Convolution& how) override {
    const auto* of = find(weight);
    if (of == nullptr) return {};
    return quantized_convolution_plain(input, of->weight, *of->input, how.stride[0], how.padding[0],
                                       bias ? *bias : at::Tensor(), at::kFloat)
        .contiguous();
  }
  Answer embedding(const at::Tensor& weight, const at::Tensor& indices) override {
    const auto* of = find(weight);
    if (of == nullptr) return {};
    return at::embedding(expand(of->weight, at::kFloat), indices);
  }

 private:
  const QuantizedParameter* find(const at::Tensor& weight) const {
    const auto found = of_.find(weight.storage().unsafeGetStorageImpl());
    return found != of_.end() ? &found->second : nullptr;
  }
  Answer product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const {
    const auto* of = find(weight);
    if (of == nullptr) return {};
    const bool casts = at::autocast::is_autocast_enabled(at::kCPU);
    return quantized_linear_plain(x, of->weight, bias, of->input,
                                  casts ? at::kBFloat16 : at::kFloat);
  }

  std::map<const c10::StorageImpl*, QuantizedParameter> of_;
};

bool convolves(const QuantizedParameters& parameters) {
  return std::any_of(parameters.begin(), parameters.end(), [](const auto& item) {
    return item.second.reader == WeightReader::convolution;
  });
}

void expect_same(const at::Tensor& got, const at::Tensor& expected,
                 const QuantizedParameters& parameters, const std::string& what) {
  ASSERT_EQ(got.sizes(), expected.sizes()) << what;
  ASSERT_TRUE(got.isfinite().all().item<bool>()) << what;
  // oneDNN's convolutions scale their sums in another order.
  if (convolves(parameters) && has_onednn_convolution()) {
    EXPECT_LT(relative(got, expected), 0.05) << what;
  } else {
    EXPECT_TRUE(at::equal(got, expected)) << what << " is off by " << relative(got, expected);
  }
}

TEST(QuantizedModels, keep_only_the_matrices_that_no_8_bit_operator_reads) {
  for (const Model& model : models()) {
    std::vector<std::string> stay;
    for (const ParameterReaders& of : find_readers(model.make(), model.batch)) {
      if (of.reader || of.why == "it is no matrix") continue;
      stay.push_back(of.name);
      EXPECT_EQ(of.why, "narrow reads it") << of.name;
    }
    EXPECT_EQ(stay, model.stay) << model.name;
  }
}

TEST(QuantizedModels, give_what_the_plain_references_give_and_answer_for_every_weight) {
  const at::NoGradGuard no_grad;
  for (const Model& model : models()) {
    const Task plain = model.make(), task = model.make();
    const QuantizedParameters parameters = quantised(plain, model.batch);
    const at::Tensor untouched = plain.predict(model.batch).outputs;
    at::Tensor expected;
    {
      const OperatorListenerScope heard(std::make_shared<PlainAnswers>(plain, parameters));
      expected = plain.predict(model.batch).outputs;
    }
    const auto layers = std::make_shared<QuantizedLayers>(*task.module, parameters);
    at::Tensor got;
    {
      const QuantizeScope scope(layers);
      got = task.predict(model.batch).outputs;
    }
    expect_same(got, expected, parameters, model.name);
    EXPECT_LT(relative(got, untouched), 0.2) << model.name << " is no longer the model";
    EXPECT_FALSE(at::equal(got, untouched)) << model.name;
    for (const auto& [name, count] : layers->answers()) EXPECT_GT(count, 0) << name;
    EXPECT_TRUE(at::equal(plain.predict(model.batch).outputs, untouched))
        << model.name << " is heard without a scope";
    EXPECT_TRUE(task.predict(model.batch).outputs.isnan().all().item<bool>())
        << model.name << " is answered without a scope";
  }
}

TEST(QuantizedModels, of_bert_answer_with_token_types_and_without) {
  const at::NoGradGuard no_grad;
  at::manual_seed(8);
  const Model model = bert_model("classify");
  const Task plain = model.make();
  Batch typed = model.batch;
  typed.fields.set("token_types", at::zeros({kRows, 11}, at::kLong));
  for (const Batch* const quantised_with : {&model.batch, static_cast<const Batch*>(&typed)}) {
    const QuantizedParameters parameters = quantised(plain, *quantised_with);
    EXPECT_EQ(parameters.count("bert.embeddings.token_type_embeddings.weight"), 1u);
    const Task task = quantized(model.make(), parameters);
    const at::Tensor y = task.predict(model.batch).outputs;
    EXPECT_TRUE(y.isfinite().all().item<bool>());
    EXPECT_TRUE(at::equal(task.predict(typed).outputs, y));
  }
}

TEST(QuantizedModels, compute_in_bf16_under_autocast) {
  const at::NoGradGuard no_grad;
  for (const Model& model : {gpt2_model(), bert_model("classify")}) {
    const Task plain = model.make();
    const QuantizedParameters parameters = quantised(plain, model.batch);
    const Task task = quantized(model.make(), parameters);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    const auto off = c10::make_scope_exit([] {
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(at::kCPU, false);
    });
    const at::Tensor got = task.predict(model.batch).outputs;
    const OperatorListenerScope heard(std::make_shared<PlainAnswers>(plain, parameters));
    const at::Tensor expected = plain.predict(model.batch).outputs;
    EXPECT_EQ(got.scalar_type(), expected.scalar_type()) << model.name;
    EXPECT_TRUE(at::equal(got, expected)) << model.name;
  }
}

TEST(QuantizedModels, of_language_answer_chunks_of_the_loss_parts_of_a_prediction_and_generation) {
  const at::NoGradGuard no_grad;
  at::manual_seed(6);
  const Model model = gpt2_model();
  const Task plain = model.make();
  const QuantizedParameters parameters = quantised(plain, model.batch);
  const Task task = quantized(model.make(), parameters);
  const GenerateRequest request{.prompt = {3, 7}, .tokens = 6, .temperature = 0};
  const at::Tensor loss = task.phases[0].forward(model.batch)[0].sum;
  const PredictionRows rows = task.predict_rows(model.batch);
  const at::Tensor some = rows.part(5, 12).outputs;
  const std::vector<int64_t> tokens = task.generate(request);

  const OperatorListenerScope heard(std::make_shared<PlainAnswers>(plain, parameters));
  EXPECT_TRUE(at::equal(loss, plain.phases[0].forward(model.batch)[0].sum));
  EXPECT_TRUE(at::equal(some, plain.predict_rows(model.batch).part(5, 12).outputs));
  EXPECT_EQ(tokens, plain.generate(request));
}

TEST(QuantizedModels, predict_on_two_threads_at_once) {
  for (const Model& model : {gpt2_model(), convnet_model()}) {
    const Task original = model.make();
    const Task task = quantized(model.make(), quantised(original, model.batch));
    std::vector<at::Tensor> results(2);
    std::vector<std::thread> threads;
    for (at::Tensor& result : results) {
      threads.emplace_back([&] {
        const at::NoGradGuard no_grad;
        for (int i = 0; i < 5; ++i) result = task.predict(model.batch).outputs;
      });
    }
    for (std::thread& thread : threads) thread.join();
    const at::NoGradGuard no_grad;
    const at::Tensor alone = task.predict(model.batch).outputs;
    EXPECT_TRUE(at::equal(results[0], alone)) << model.name;
    EXPECT_TRUE(at::equal(results[1], alone)) << model.name;
  }
}

TEST(QuantizedModels, stay_one_row_a_weight_when_an_evaluation_lays_images_channels_last) {
  RunConfig config = tiny_config("convnet");
  config.precision.mode = "fp32";
  config.model.memory_format = "channels_last";
  const at::NoGradGuard no_grad;
  const Batch batch = labelled(at::randn({kRows, 1, 8, 8}), at::randint(5, {kRows}, at::kLong));
  const auto data = open_dataset(config.data.train, "data.train");
  const Task original = build_task(config, ModelRegistry(), *data);
  original.module->eval();
  const Task task = quantized(original, quantised(original, batch));
  const TinyRun run(config);
  ASSERT_TRUE(run.parts.plan.memory.channels_last);
  const at::Tensor before = task.predict(batch).outputs;
  const RunState state = build_run_state(task, run.parts, /*trains=*/false);
  EXPECT_LT(relative(state.task.predict(batch).outputs, before), 0.05);
  int replaced = 0;
  for (const auto& item : state.task.module->named_parameters()) {
    const at::Tensor& weight = item.value();
    if (weight.dim() != 4) continue;
    replaced += is_replaced(weight) ? 1 : 0;
    EXPECT_EQ(weight.storage().nbytes(), weight[0].numel() * sizeof(float)) << item.key();
  }
  EXPECT_GT(replaced, 4);
}

}  // namespace
}  // namespace tanren::testing
