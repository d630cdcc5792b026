#include "tanren/model/lstm.h"

#include "tanren/base/error.h"
#include "tanren/base/random.h"
#include "tanren/base/testing.h"
#include "tanren/formats/safetensors.h"
#include "tanren/model/registry.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

namespace tanren {
namespace {

using testing::error_of;

struct LstmCase {
  std::string name;  // tests/fixtures/lstm_<name>.safetensors
  ModelOptions options;
  DataInfo info;
};

LstmCase lstm_case(const std::string& name) {
  LstmCase item{name,
                {.kind = "lstm",
                 .num_layers = 2,
                 .hidden_size = 10,
                 .task = name == "next_token" ? name : "classify",
                 .embedding_size = 8,
                 .bidirectional = name == "both_ways" || name == "vectors"},
                {.input_shape = {9}, .outputs = 3, .vocab_size = 17}};
  if (name == "vectors") {
    item.info = {.input_shape = {9, 8}, .outputs = 3};
    item.options.embedding_size = 0;
  }
  return item;
}

SafetensorsFile lstm_fixture(const LstmCase& item) {
  return read_safetensors(TANREN_SOURCE_DIR "/tests/fixtures/lstm_" + item.name + ".safetensors");
}

Task lstm_of(const SafetensorsFile& file, const LstmCase& item) {
  Task task = lstm_task(item.options, item.info);
  const at::NoGradGuard no_grad;
  for (auto& parameter : task.module->named_parameters()) {
    parameter.value().copy_(file.tensors.at("parameter/" + parameter.key()));
  }
  return task;
}

Batch lstm_batch(const SafetensorsFile& file, int64_t begin = 0, int64_t end = 4) {
  Batch batch;
  for (const char* name : {"inputs", "attention_mask", "labels"}) {
    if (const auto* field = file.tensors.find(name)) batch.fields.set(name, *field);
  }
  batch.ids = at::arange(4);
  return batch.slice(begin, end);
}

double lstm_distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b).norm() / b.norm()).item<double>();
}

TEST(Lstm, refuses_data_and_keys_that_do_not_fit_in_one_clear_line) {
  const auto message = [](const ModelOptions& options, const DataInfo& info) {
    std::string text = error_of<ConfigError>([&] { ModelRegistry().make(options, info); });
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  };
  const DataInfo tokens{.input_shape = {9}, .outputs = 3, .vocab_size = 17};
  TANREN_EXPECT_CONTAINS(message({.kind = "lstm"}, {.input_shape = {9}, .outputs = 3}),
                         "inputs have shape [9]");
  TANREN_EXPECT_CONTAINS(message({.kind = "lstm", .task = "masked_lm"}, tokens),
                         "no task 'masked_lm'");
  TANREN_EXPECT_CONTAINS(
      message({.kind = "lstm", .task = "next_token"}, {.input_shape = {9, 8}, .outputs = 3}),
      "needs tokens to guess the next one");
  TANREN_EXPECT_CONTAINS(
      message({.kind = "lstm", .task = "next_token", .bidirectional = true}, tokens),
      "has seen the next token");
  TANREN_EXPECT_CONTAINS(message({.kind = "lstm", .vocab_size = 16}, tokens),
                         "vocab_size 16 is smaller than the data's 17");
  TANREN_EXPECT_CONTAINS(message({.kind = "lstm", .pad_token = 17}, tokens),
                         "pad_token 17 is none of the vocab_size 17");
}

TEST(Lstm, equals_torch_in_names_initial_values_outputs_loss_and_gradients) {
  for (const char* name : {"classify", "both_ways", "vectors", "next_token"}) {
    SCOPED_TRACE(name);
    const LstmCase item = lstm_case(name);
    const auto file = lstm_fixture(item);
    at::manual_seed(9);
    const Task fresh = lstm_task(item.options, item.info);
    size_t count = 0;
    for (const auto& parameter : fresh.module->named_parameters()) {
      EXPECT_TRUE(at::equal(parameter.value(), file.tensors.at("parameter/" + parameter.key())))
          << parameter.key();
    }
    for (const auto& field : file.tensors) count += field.first.starts_with("parameter/");
    EXPECT_EQ(fresh.module->named_parameters().size(), count);

    const Task task = lstm_of(file, item);
    const Batch batch = lstm_batch(file);
    const at::Tensor logits = file.tensors.at("logits");
    const bool tokens = item.name == "next_token";
    EXPECT_LT(lstm_distance(task.predict(batch).outputs, tokens ? logits.transpose(1, 2) : logits),
              1e-5);
    const Term term = task.phases[0].forward(batch)[0];
    EXPECT_EQ(term.count_name, tokens ? "tokens" : "samples");
    EXPECT_LT(lstm_distance(term.sum.detach(), file.tensors.at("loss")), 1e-5);
    term.sum.backward();
    for (const auto& parameter : task.module->named_parameters()) {
      EXPECT_LT(
          lstm_distance(parameter.value().grad(), file.tensors.at("gradient/" + parameter.key())),
          1e-4)
          << parameter.key();
    }
  }
}

TEST(Lstm, sees_nothing_of_padding) {
  for (const char* name : {"classify", "both_ways"}) {
    const LstmCase item = lstm_case(name);
    const auto file = lstm_fixture(item);
    const Task task = lstm_of(file, item);
    const at::NoGradGuard no_grad;
    Batch batch = lstm_batch(file);
    const at::Tensor before = task.predict(batch).outputs;
    batch.fields.set("inputs", batch["inputs"].masked_fill(batch["attention_mask"].eq(0), 13));
    EXPECT_TRUE(at::equal(task.predict(batch).outputs, before)) << name;
    batch.fields.set("attention_mask", at::ones({4, 9}));
    EXPECT_FALSE(at::allclose(task.predict(batch).outputs, before)) << name;
  }
}

TEST(Lstm, starts_the_padding_tokens_embedding_at_0_and_gives_it_no_gradient) {
  LstmCase item = lstm_case("next_token");
  item.options.pad_token = 3;
  item.options.initializer_range = 0.01;
  const auto file = lstm_fixture(item);
  const Task task = lstm_task(item.options, item.info);
  const at::Tensor embedding = task.module->named_parameters()["embedding.weight"];
  EXPECT_EQ(embedding[3].abs().max().item<double>(), 0);
  EXPECT_NEAR(embedding.std().item<double>(), 0.01, 0.003);
  Batch batch = lstm_batch(file);
  batch.fields.set("inputs", at::full({4, 9}, 3, at::kLong));
  task.phases[0].forward(batch)[0].sum.backward();
  EXPECT_EQ(embedding.grad().abs().max().item<double>(), 0);
}

TEST(Lstm, dropout_makes_any_split_equal_the_whole_batch_and_each_site_counts) {
  LstmCase item = lstm_case("both_ways");
  const auto file = lstm_fixture(item);
  const auto run = [&](int64_t begin, int64_t end, bool training = true) {
    const Task task = lstm_of(file, item);
    task.module->train(training);
    const Batch batch = lstm_batch(file, begin, end);
    const RandomScope scope(1, 2, batch.ids);
    const at::NoGradGuard no_grad;
    return task.predict(batch).outputs;
  };
  const at::Tensor plain = run(0, 4);
  for (auto ModelOptions::*site : {&ModelOptions::dropout, &ModelOptions::embedding_dropout,
                                   &ModelOptions::classifier_dropout}) {
    item.options.dropout = item.options.embedding_dropout = item.options.classifier_dropout = 0.0;
    item.options.*site = 0.3;
    EXPECT_FALSE(at::allclose(run(0, 4), plain));
    EXPECT_TRUE(at::allclose(run(0, 4, false), plain));
  }
  item.options = lstm_case("both_ways").options;
  item.options.dropout = 0.3;
  EXPECT_TRUE(at::allclose(at::cat({run(0, 1), run(1, 4)}), run(0, 4), 1e-5, 1e-5));
}

}  // namespace
}  // namespace tanren
