#include "tanren/model/bert.h"

#include "tanren/base/error.h"
#include "tanren/base/random.h"
#include "tanren/base/testing.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/formats/safetensors.h"
#include "tanren/model/registry.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include <cmath>

namespace tanren {
namespace {

using testing::error_of;

const DataInfo kSentences{.input_shape = {11}, .outputs = 5, .vocab_size = 37, .token_types = 3};

ModelOptions tiny_bert(const std::string& task) {
  return {.kind = "bert",
          .activation = "",
          .dropout = 0.0,
          .num_layers = 2,
          .num_heads = 3,
          .hidden_size = 24,
          .intermediate_size = 40,
          .context_length = 16,
          .layer_norm_eps = 1e-6,
          .initializer_range = 0.2,
          .task = task,
          .token_types = 3};
}

SafetensorsFile bert_fixture(const std::string& task) {
  return read_safetensors(TANREN_SOURCE_DIR "/tests/fixtures/bert_" + task + ".safetensors");
}

Task bert_of(const SafetensorsFile& file, const ModelOptions& options) {
  Task task = bert_task(options, kSentences);
  const at::NoGradGuard no_grad;
  for (auto& item : task.module->named_parameters()) {
    item.value().copy_(file.tensors.at("parameter/" + item.key()));
  }
  return task;
}

std::shared_ptr<Bert> model_of(const SafetensorsFile& file, const ModelOptions& options) {
  return std::dynamic_pointer_cast<Bert>(bert_of(file, options).module);
}

Batch batch_of(const SafetensorsFile& file) {
  Batch batch;
  for (const char* name : {"inputs", "token_types", "attention_mask", "labels"}) {
    batch.fields.set(name, file.tensors.at(name));
  }
  batch.ids = at::arange(4);
  return batch;
}

double bert_distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b).norm() / b.norm()).item<double>();
}

TEST(Bert, refuses_data_and_sizes_that_do_not_fit_in_one_clear_line) {
  const auto message = [](const ModelOptions& options, const DataInfo& info) {
    std::string text = error_of<ConfigError>([&] { ModelRegistry().make(options, info); });
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  };
  ModelOptions options = tiny_bert("");
  TANREN_EXPECT_CONTAINS(message(options, {.input_shape = {1, 8, 8}, .outputs = 10}),
                         "of shape [1, 8, 8], are none");
  options.num_heads = 5;
  TANREN_EXPECT_CONTAINS(message(options, kSentences),
                         "hidden_size 24 cannot be divided among num_heads 5");
  options = tiny_bert("");
  options.context_length = 10;
  TANREN_EXPECT_CONTAINS(message(options, kSentences),
                         "context_length 10 is smaller than the data's 11 tokens");
  options = tiny_bert("");
  options.token_types = 2;
  TANREN_EXPECT_CONTAINS(message(options, kSentences),
                         "token_types 2 is smaller than the data's 3 kinds of token");
  options = tiny_bert("");
  options.vocab_size = 36;
  TANREN_EXPECT_CONTAINS(message(options, kSentences), "vocab_size 36 is smaller than the data's");
  options = tiny_bert("");
  options.pad_token = 37;
  TANREN_EXPECT_CONTAINS(message(options, kSentences), "pad_token 37 is none of the vocab_size 37");
  TANREN_EXPECT_CONTAINS(message(tiny_bert("translate"), kSentences), "no task 'translate'");
  options = tiny_bert("");
  options.size = "bert-huge";
  TANREN_EXPECT_CONTAINS(message(options, kSentences), "there are bert-base-uncased,");
}

TEST(Bert, presets_have_the_published_sizes_and_every_key_overrides_them) {
  const DataInfo info{.input_shape = {512}, .outputs = 2, .vocab_size = 21128};
  const std::vector<std::pair<std::string, int64_t>> published = {{"bert-base-uncased", 109482240},
                                                                  {"bert-base-cased", 108310272},
                                                                  {"bert-large-uncased", 335141888},
                                                                  {"bert-large-cased", 333579264},
                                                                  {"bert-base-chinese", 102267648},
                                                                  {"", 102267648},
                                                                  {"bert-tiny", 4385920}};
  for (const auto& [size, count] : published) {
    const DryScope without_memory;
    const Bert model(bert_shape({.size = size}, info));
    int64_t parameters = 0;
    for (const auto& item : model.named_parameters()) {
      if (!item.key().starts_with("classifier")) parameters += item.value().numel();
    }
    EXPECT_EQ(parameters, count) << size;
  }
  const BertShape shape = bert_shape({.activation = "relu",
                                      .dropout = 0.3,
                                      .num_layers = 2,
                                      .num_heads = 4,
                                      .hidden_size = 32,
                                      .context_length = 600,
                                      .vocab_size = 30000,
                                      .attention_dropout = 0.0,
                                      .layer_norm_eps = 1e-5,
                                      .initializer_range = 0.5,
                                      .token_types = 4,
                                      .pad_token = -1,
                                      .classifier_dropout = 0.2},
                                     info);
  EXPECT_EQ(shape.activation, "relu");
  EXPECT_EQ(shape.num_layers, 2);
  EXPECT_EQ(shape.intermediate_size, 128);
  EXPECT_EQ(shape.context_length, 600);
  EXPECT_EQ(shape.vocab_size, 30000);
  EXPECT_EQ(shape.token_types, 4);
  EXPECT_EQ(shape.pad_token, -1);
  EXPECT_EQ(shape.embedding_dropout, 0.3);
  EXPECT_EQ(shape.attention_dropout, 0.0);
  EXPECT_EQ(shape.residual_dropout, 0.3);
  EXPECT_EQ(shape.classifier_dropout, 0.2);
  EXPECT_EQ(shape.layer_norm_eps, 1e-5);
  EXPECT_EQ(shape.initializer_range, 0.5);
}

TEST(Bert, starts_from_the_published_initialisation) {
  at::manual_seed(1);
  ModelOptions options = tiny_bert("");
  options.hidden_size = 96;
  options.intermediate_size = 0;
  const Task task = bert_task(options, kSentences);
  for (const auto& item : task.module->named_parameters()) {
    const std::string& name = item.key();
    at::Tensor value = item.value().detach();
    if (name.ends_with("bias")) {
      EXPECT_EQ(value.abs().max().item<double>(), 0) << name;
    } else if (testing::contains(name, "LayerNorm")) {
      EXPECT_TRUE((value == 1).all().item<bool>()) << name;
    } else {
      if (testing::contains(name, "word_embeddings")) {
        EXPECT_EQ(value[0].abs().max().item<double>(), 0);
        value = value.slice(0, 1);
      }
      const double spread = 5 / std::sqrt(2.0 * static_cast<double>(value.numel()));
      EXPECT_NEAR(value.std().item<double>(), 0.2, 0.2 * spread) << name;
    }
  }
}

TEST(Bert, equals_transformers_in_names_outputs_loss_and_gradients) {
  for (const std::string name : {"classify", "masked_lm"}) {
    SCOPED_TRACE(name);
    const bool classify = name == "classify";
    const auto file = bert_fixture(name);
    const Task task = bert_of(file, tiny_bert(name));
    EXPECT_EQ(task.module->named_parameters().size(), 5u + 2 * 16 + (classify ? 4 : 5));
    const Batch batch = batch_of(file);
    const at::Tensor logits = file.tensors.at("logits");
    const Prediction prediction = task.predict(batch);
    EXPECT_LT(bert_distance(prediction.outputs, classify ? logits : logits.transpose(1, 2)), 1e-5);
    const Term term = task.phases[0].forward(batch)[0];
    EXPECT_EQ(term.count_name, classify ? "samples" : "tokens");
    EXPECT_LT(bert_distance(term.sum.detach(), file.tensors.at("loss")), 1e-5);
    term.sum.backward();
    for (const auto& item : task.module->named_parameters()) {
      const at::Tensor& expected = file.tensors.at("gradient/" + item.key());
      // The gradient of a key's bias is 0 up to rounding, because softmax does not depend on it.
      const double scale = item.key().ends_with("key.bias") ? 1e-2 : 0.0;
      const double distance = (item.value().grad() - expected).norm().item<double>();
      EXPECT_LT(distance, 1e-4 * (scale + expected.norm().item<double>())) << item.key();
    }
  }
}

TEST(Bert, pools_as_transformers_and_knows_inputs_without_types_and_mask) {
  const auto file = bert_fixture("classify");
  const auto model = model_of(file, tiny_bert("classify"));
  const at::NoGradGuard no_grad;
  const at::Tensor pooled = model->pooled(model->states(bert_inputs(batch_of(file))));
  EXPECT_LT(bert_distance(pooled, file.tensors.at("pooled")), 1e-5);
  EXPECT_LT(bert_distance(model->forward({file.tensors.at("inputs"), {}, {}}),
                          file.tensors.at("bare_logits")),
            1e-5);
  const auto language_file = bert_fixture("masked_lm");
  const auto language = model_of(language_file, tiny_bert("masked_lm"));
  EXPECT_LT(bert_distance(language->forward({language_file.tensors.at("inputs"), {}, {}}),
                          language_file.tensors.at("bare_logits")),
            1e-5);
  TANREN_EXPECT_CONTAINS(error_of<Error>([&] {
                           language->pooled(at::zeros({1, 2, 24}));
                         }),
                         "has no pooler");
  TANREN_EXPECT_CONTAINS(error_of<Error>([&] {
                           model->states({at::ones({1, 17}, at::kLong), {}, {}});
                         }),
                         "17 tokens and has 16 positions");
}

TEST(Bert, sees_nothing_of_padding_whatever_stands_there_and_whatever_the_masks_dtype) {
  const auto file = bert_fixture("classify");
  for (const double dropout : {0.0, 0.2}) {
    ModelOptions options = tiny_bert("classify");
    options.attention_dropout = dropout;
    const auto model = model_of(file, options);
    BertInputs inputs = bert_inputs(batch_of(file));
    const auto run = [&] {
      const at::NoGradGuard no_grad;
      const RandomScope scope(1, 2, at::arange(4));
      return model->forward(inputs);
    };
    const at::Tensor before = run();
    const at::Tensor padding = inputs.mask.eq(0);
    inputs.ids = inputs.ids.masked_fill(padding, 31);
    inputs.token_types = inputs.token_types.masked_fill(padding, 2);
    EXPECT_TRUE(at::equal(run(), before));
    for (const auto dtype : {at::kBool, at::kFloat, at::kInt}) {
      inputs.mask = inputs.mask.to(dtype);
      EXPECT_TRUE(at::equal(run(), before)) << dtype;
    }
    inputs.mask = at::Tensor();
    EXPECT_FALSE(at::allclose(run(), before));
  }
  // The same sample without its padding.
  const auto model = model_of(file, tiny_bert("classify"));
  const at::NoGradGuard no_grad;
  const BertInputs padded = bert_inputs(batch_of(file));
  const BertInputs cut{padded.ids.slice(0, 1, 2).slice(1, 0, 6),
                       padded.token_types.slice(0, 1, 2).slice(1, 0, 6),
                       {}};
  EXPECT_LT(bert_distance(model->forward(cut), model->forward(padded).slice(0, 1, 2)), 1e-6);
}

TEST(Bert, stays_finite_for_a_sample_of_padding_alone) {
  const auto file = bert_fixture("classify");
  for (const double dropout : {0.0, 0.2}) {
    ModelOptions options = tiny_bert("classify");
    options.attention_dropout = dropout;
    const auto model = model_of(file, options);
    BertInputs inputs = bert_inputs(batch_of(file));
    inputs.mask = at::zeros_like(inputs.mask);
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      model->to(dtype);
      const RandomScope scope(1, 2, at::arange(4));
      const at::Tensor sum = model->forward(inputs).sum();
      sum.backward();
      EXPECT_TRUE(at::isfinite(sum).item<bool>()) << dtype;
      EXPECT_TRUE(at::isfinite(model->parameters()[0].grad()).all().item<bool>()) << dtype;
      model->zero_grad();
    }
  }
}

TEST(Bert, dropout_makes_any_split_equal_the_whole_batch_and_each_site_counts) {
  const auto file = bert_fixture("classify");
  const BertInputs inputs = bert_inputs(batch_of(file));
  const auto run = [&](const ModelOptions& options, int64_t begin, int64_t end) {
    const auto model = model_of(file, options);
    const RandomScope scope(1, 2, at::arange(10 + begin, 10 + end));
    const auto part = [&](const at::Tensor& x) { return x.slice(0, begin, end); };
    return model->forward({part(inputs.ids), part(inputs.token_types), part(inputs.mask)}).detach();
  };
  ModelOptions options = tiny_bert("classify");
  const at::Tensor plain = run(options, 0, 4);
  for (auto ModelOptions::*site :
       {&ModelOptions::embedding_dropout, &ModelOptions::attention_dropout,
        &ModelOptions::residual_dropout, &ModelOptions::classifier_dropout}) {
    ModelOptions one = tiny_bert("classify");
    one.*site = 0.3;
    EXPECT_FALSE(at::allclose(run(one, 0, 4), plain));
  }
  options.dropout = 0.3;
  const at::Tensor whole = run(options, 0, 4);
  EXPECT_TRUE(at::allclose(at::cat({run(options, 0, 1), run(options, 1, 4)}), whole, 1e-4, 1e-4));
  const auto model = model_of(file, options);
  model->eval();
  EXPECT_TRUE(at::allclose(model->forward(inputs), plain, 1e-4, 1e-4));
}

TEST(Bert, computes_in_bf16_under_autocast_with_a_loss_in_fp32_and_gradients_in_fp32) {
  const auto file = bert_fixture("masked_lm");
  ModelOptions options = tiny_bert("masked_lm");
  options.dropout = 0.1;
  const Task task = bert_of(file, options);
  const Batch batch = batch_of(file);
  const RandomScope scope(1, 2, batch.ids);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const Term term = task.phases[0].forward(batch)[0];
  const at::Tensor outputs = task.predict(batch).outputs;
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_EQ(outputs.scalar_type(), at::kBFloat16);
  EXPECT_EQ(term.sum.scalar_type(), at::kFloat);
  term.sum.backward();
  const Task exact = bert_of(file, options);
  exact.phases[0].forward(batch)[0].sum.backward();
  const auto expected = exact.module->named_parameters();
  for (const auto& item : task.module->named_parameters()) {
    EXPECT_EQ(item.value().grad().scalar_type(), at::kFloat);
    if (item.key().ends_with("key.bias")) continue;  // 0 up to rounding
    EXPECT_LT(bert_distance(item.value().grad(), expected[item.key()].grad()), 0.1) << item.key();
  }
}

}  // namespace
}  // namespace tanren
