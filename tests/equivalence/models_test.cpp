// Our models against those of transformers and torch, from the same weights: 20 steps of AdamW give
// the same losses. The split into microbatches and padding do not change a run.
#include "tanren/base/testing.h"
#include "tanren/formats/safetensors.h"
#include "tests/support/tiny_run.h"

#include <ATen/core/grad_mode.h>

#include <gtest/gtest.h>

namespace tanren::testing {
namespace {

// A model and its fixture tests/fixtures/<name>.safetensors.
struct Reference {
  const char* name;
  ModelOptions model;
  DataInfo data;
};

Reference bert_reference(const char* name, const std::string& task) {
  ModelOptions model;
  model.kind = "bert";
  model.task = task;
  model.dropout = 0.0;
  model.num_layers = 2;
  model.num_heads = 3;
  model.hidden_size = 24;
  model.intermediate_size = 40;
  model.context_length = 16;
  model.token_types = 3;
  model.layer_norm_eps = 1e-6;
  return {name, model, {.input_shape = {11}, .outputs = 5, .vocab_size = 37, .token_types = 3}};
}

Reference lstm_reference(const char* name, const std::string& task, bool bidirectional,
                         const DataInfo& data) {
  ModelOptions model;
  model.kind = "lstm";
  model.task = task;
  model.num_layers = 2;
  model.hidden_size = 10;
  model.embedding_size = 8;
  model.bidirectional = bidirectional;
  return {name, model, data};
}

std::vector<Reference> references() {
  const DataInfo tokens{.input_shape = {9}, .outputs = 3, .vocab_size = 17};
  return {bert_reference("bert_classify", "classify"),
          bert_reference("bert_masked_lm", "masked_lm"),
          lstm_reference("lstm_classify", "classify", false, tokens),
          lstm_reference("lstm_both_ways", "classify", true, tokens),
          lstm_reference("lstm_vectors", "classify", true, {.input_shape = {9, 8}, .outputs = 3}),
          lstm_reference("lstm_next_token", "next_token", false, tokens)};
}

// The batch of the fixture as the samples of a dataset.
std::unique_ptr<TensorDataset> data_of(const SafetensorsFile& file, const DataInfo& info) {
  TensorMap fields;
  for (const char* name : {"inputs", "token_types", "attention_mask", "labels"}) {
    if (const auto* field = file.tensors.find(name)) fields.set(name, *field);
  }
  return std::make_unique<TensorDataset>(fields, info, "data.train");
}

struct ModelRun {
  ModelRun(const Reference& reference, const std::string& mode, int64_t microbatch, double dropout)
      : file(read_safetensors(TANREN_SOURCE_DIR "/tests/fixtures/" + std::string(reference.name) +
                              ".safetensors")),
        data(data_of(file, reference.data)) {
    RunConfig config = tiny_config(reference.model.kind);
    config.model = reference.model;
    config.model.dropout = dropout;
    config.precision.mode = mode;
    config.optimizer.learning_rate = 2e-3;
    config.data.shuffle = false;
    config.batch.global_batch = std::to_string(data->size());
    config.batch.microbatch = microbatch;
    Task task = build_task(config, ModelRegistry(), *data);
    const at::NoGradGuard no_grad;
    for (auto& item : task.module->named_parameters()) {
      item.value().copy_(file.tensors.at("parameter/" + item.key()));
    }
    run = std::make_unique<TinyRun>(config, data.get(), std::move(task));
  }

  SafetensorsFile file;
  std::unique_ptr<TensorDataset> data;
  std::unique_ptr<TinyRun> run;
};

TEST(ModelRun, loses_as_the_reference_through_20_adamw_steps) {
  for (const auto& reference : references()) {
    ModelRun model(reference, "fp32", 0, 0.0);
    const auto reports = model.run->steps(20);
    const at::Tensor& expected = model.file.tensors.at("losses");
    for (int64_t i = 0; i < 20; ++i) {
      const double loss = expected[i].item<double>();
      EXPECT_NEAR(reports[static_cast<size_t>(i)].objectives[0].loss, loss, 1e-4 * loss)
          << reference.name << ", step " << i;
    }
  }
}

TEST(ModelRun, in_16_bits_on_the_cpu_loses_nearly_as_in_fp32) {
  if (test_device() != "cpu") GTEST_SKIP() << "compares kernels of the CPU";
  for (const auto& reference : references()) {
    for (const char* mode : {"bf16", "fp16"}) {
      ModelRun exact(reference, "fp32", 0, 0.0), half(reference, mode, 3, 0.0);
      const auto expected = exact.run->steps(3).back().objectives[0].loss;
      EXPECT_NEAR(half.run->steps(3).back().objectives[0].loss, expected, 0.05 * expected)
          << reference.name << " in " << mode;
    }
  }
}

TEST(ModelRun, of_any_split_has_the_whole_batchs_weights_with_every_dropout_on) {
  for (const auto& reference : references()) {
    ModelRun whole(reference, "fp64", 0, 0.2), split(reference, "fp64", 3, 0.2),
        single(reference, "fp64", 1, 0.2);
    whole.run->steps(5);
    split.run->steps(5);
    single.run->steps(5);
    EXPECT_LT(relative(split.run->weights(), whole.run->weights()), 1e-10) << reference.name;
    EXPECT_LT(relative(single.run->weights(), whole.run->weights()), 1e-10) << reference.name;
  }
}

// Texts of one to twelve words.
std::string table_of_texts() {
  std::string text = "text,label\n";
  for (int i = 0; i < 30; ++i) {
    for (int word = 0; word <= i * 7 % 12; ++word) text += word % 2 == i % 2 ? "the " : "a ";
    text += std::string(i % 3 == 0 ? "cat" : "dog") + "," + std::to_string(i % 3) + "\n";
  }
  return text;
}

TEST(TextTable, of_any_split_and_padding_has_the_whole_batchs_weights) {
  const TemporaryFolder folder;
  const auto file = folder.file("texts.csv", table_of_texts());
  for (const std::string kind : {"bert", "lstm"}) {
    RunConfig config = tiny_config(kind);
    config.model.num_layers = 2;
    config.model.hidden_size = 8;
    if (kind == "bert") config.model.num_heads = 2;
    config.model.dropout = 0.2;
    config.data.train = {.kind = "text_table", .path = file, .context = 32};
    config.data.train.tokenizer = TANREN_SOURCE_DIR "/tests/fixtures/tokenizer/vocab.txt";
    config.batch.global_batch = "10";
    TinyRun whole(config);
    config.batch.microbatch = 3;
    TinyRun split(config);
    const auto before = whole.weights();
    whole.steps(5);
    split.steps(5);
    EXPECT_LT(relative(split.weights(), whole.weights()), 1e-10) << kind;
    EXPECT_GT(relative(whole.weights(), before), 1e-3) << kind;
    config.data.train.padding = "fixed";
    TinyRun wide(config);
    wide.steps(5);
    EXPECT_LT(relative(wide.weights(), whole.weights()), 1e-10) << kind;
  }
}

}  // namespace
}  // namespace tanren::testing
