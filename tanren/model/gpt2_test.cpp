#include "tanren/model/gpt2.h"

#include "tanren/base/error.h"
#include "tanren/base/random.h"
#include "tanren/base/testing.h"
#include "tanren/dry/trace_scope.h"
#include "tanren/formats/safetensors.h"
#include "tanren/model/generate.h"
#include "tanren/model/registry.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

namespace tanren {
namespace {

using testing::error_of;

const DataInfo kTokens{.input_shape = {13}, .outputs = 61, .vocab_size = 61};

ModelOptions tiny_options() {
  return {.kind = "gpt2",
          .dropout = 0.0,
          .num_layers = 3,
          .num_heads = 3,
          .hidden_size = 24,
          .intermediate_size = 80,
          .context_length = 16,
          .layer_norm_eps = 2e-5};
}

SafetensorsFile gpt2_fixture() {
  return read_safetensors(TANREN_SOURCE_DIR "/tests/fixtures/gpt2.safetensors");
}

// The model of the fixture, with its weights.
Task fixture_task(const SafetensorsFile& file, const ModelOptions& options = tiny_options()) {
  Task task = gpt2_task(options, kTokens);
  const at::NoGradGuard no_grad;
  for (auto& item : task.module->named_parameters()) {
    item.value().copy_(file.tensors.at("parameter/" + item.key()));
  }
  return task;
}

Batch fixture_batch(const SafetensorsFile& file) {
  Batch batch;
  batch.fields.set("inputs", file.tensors.at("inputs"));
  batch.fields.set("labels", file.tensors.at("labels"));
  batch.ids = at::arange(3);
  return batch;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b).norm() / b.norm()).item<double>();
}

TEST(Gpt2, refuses_data_and_sizes_that_do_not_fit_in_one_clear_line) {
  const auto message = [](const ModelOptions& options, const DataInfo& info) {
    std::string text = error_of<ConfigError>([&] { ModelRegistry().make(options, info); });
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  };
  ModelOptions options = tiny_options();
  TANREN_EXPECT_CONTAINS(message(options, {.input_shape = {1, 8, 8}, .outputs = 10}),
                         "of shape [1, 8, 8], are none; set data.train.kind");
  TANREN_EXPECT_CONTAINS(message(options, {.input_shape = {2, 8}, .vocab_size = 61}),
                         "have shape [2, 8]");
  options.num_heads = 5;
  TANREN_EXPECT_CONTAINS(message(options, kTokens),
                         "hidden_size 24 cannot be divided among num_heads 5");
  options = tiny_options();
  options.context_length = 12;
  TANREN_EXPECT_CONTAINS(message(options, kTokens),
                         "sequences of 13 tokens do not fit a context_length of 12");
  options = tiny_options();
  options.vocab_size = 60;
  TANREN_EXPECT_CONTAINS(message(options, kTokens),
                         "vocab_size 60 is smaller than the data's 61 tokens");
  options.size = "gpt5";
  TANREN_EXPECT_CONTAINS(message(options, kTokens), "size 'gpt5' is unknown; there are gpt2,");
}

TEST(Gpt2, presets_have_the_published_sizes_and_every_key_overrides_them) {
  const DataInfo info{.input_shape = {1024}, .vocab_size = 50257};
  const auto parameters = [](const Gpt2Shape& s) {
    const int64_t d = s.hidden_size, i = s.intermediate_size;
    return (s.vocab_size + s.context_length) * d + 2 * d +
           s.num_layers * (4 * d + d * 3 * d + 3 * d + d * d + d + 2 * d * i + i + d);
  };
  const std::vector<std::pair<std::string, int64_t>> published = {
      {"", 124439808},           {"gpt2", 124439808},
      {"distilgpt2", 81912576},  {"gpt2-medium", 354823168},
      {"gpt2-large", 774030080}, {"gpt2-xl", 1557611200}};
  for (const auto& [size, count] : published) {
    const Gpt2Shape shape = gpt2_shape({.size = size}, info);
    EXPECT_EQ(parameters(shape), count) << size;
    EXPECT_EQ(shape.attention_dropout, 0.1);
  }
  const Gpt2Shape shape = gpt2_shape({.dropout = 0.3,
                                      .num_layers = 2,
                                      .num_heads = 4,
                                      .hidden_size = 32,
                                      .context_length = 2048,
                                      .vocab_size = 50304,
                                      .attention_dropout = 0.0,
                                      .initializer_range = 0.5},
                                     info);
  EXPECT_EQ(shape.num_layers, 2);
  EXPECT_EQ(shape.intermediate_size, 128);
  EXPECT_EQ(shape.context_length, 2048);
  EXPECT_EQ(shape.vocab_size, 50304);
  EXPECT_EQ(shape.embedding_dropout, 0.3);
  EXPECT_EQ(shape.attention_dropout, 0.0);
  EXPECT_EQ(shape.residual_dropout, 0.3);
  EXPECT_EQ(shape.initializer_range, 0.5);
}

TEST(Gpt2, starts_from_the_published_initialisation) {
  at::manual_seed(1);
  ModelOptions options = tiny_options();
  options.hidden_size = 96;
  options.intermediate_size = 0;
  const Task task = gpt2_task(options, kTokens);
  for (const auto& item : task.module->named_parameters()) {
    const std::string& name = item.key();
    const bool is_norm = testing::contains(name, "ln_");
    if (name.ends_with("bias")) {
      EXPECT_EQ(item.value().abs().max().item<double>(), 0) << name;
    } else if (is_norm) {
      EXPECT_TRUE((item.value() == 1).all().item<bool>()) << name;
    } else {
      const double std = name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(6.0) : 0.02;
      EXPECT_NEAR(item.value().std().item<double>(), std, 0.05 * std) << name;
    }
  }
}

TEST(Gpt2, equals_transformers_in_names_logits_loss_and_gradients) {
  const auto file = gpt2_fixture();
  const Task task = fixture_task(file);
  EXPECT_EQ(task.module->named_parameters().size(), 2u + 3 * 12 + 2);
  const Batch batch = fixture_batch(file);
  const Prediction prediction = task.predict(batch);
  EXPECT_LT(distance(prediction.outputs, file.tensors.at("logits").transpose(1, 2)), 1e-5);
  const Term term = task.phases[0].forward(batch)[0];
  EXPECT_EQ(term.count_name, "tokens");
  EXPECT_LT(distance(term.sum.detach(), file.tensors.at("loss")), 1e-5);
  term.sum.backward();
  for (const auto& item : task.module->named_parameters()) {
    EXPECT_LT(distance(item.value().grad(), file.tensors.at("gradient/" + item.key())), 1e-4)
        << item.key();
  }
}

TEST(Gpt2, sees_nothing_of_the_future) {
  const auto file = gpt2_fixture();
  const auto model = std::dynamic_pointer_cast<Gpt2>(fixture_task(file).module);
  const at::NoGradGuard no_grad;
  const at::Tensor ids = file.tensors.at("inputs");
  at::Tensor changed = ids.clone();
  changed.select(1, 9).fill_(5);
  const at::Tensor a = model->forward(ids), b = model->forward(changed);
  EXPECT_TRUE(at::allclose(a.slice(1, 0, 9), b.slice(1, 0, 9)));
  EXPECT_FALSE(at::allclose(a.slice(1, 9), b.slice(1, 9)));
}

TEST(Gpt2, dropout_makes_any_split_equal_the_whole_batch_and_each_site_counts) {
  const auto file = gpt2_fixture();
  const at::Tensor ids = file.tensors.at("inputs");
  const auto run = [&](const ModelOptions& options, int64_t begin, int64_t end) {
    const auto model = std::dynamic_pointer_cast<Gpt2>(fixture_task(file, options).module);
    const RandomScope scope(1, 2, at::arange(10 + begin, 10 + end));
    return model->forward(ids.slice(0, begin, end)).detach();
  };
  ModelOptions options = tiny_options();
  const at::Tensor plain = run(options, 0, 3);
  for (auto ModelOptions::*site :
       {&ModelOptions::embedding_dropout, &ModelOptions::attention_dropout,
        &ModelOptions::residual_dropout}) {
    ModelOptions one = tiny_options();
    one.*site = 0.3;
    EXPECT_FALSE(at::allclose(run(one, 0, 3), plain));
  }
  options.dropout = 0.3;
  const at::Tensor whole = run(options, 0, 3);
  EXPECT_TRUE(at::allclose(at::cat({run(options, 0, 1), run(options, 1, 3)}), whole, 1e-4, 1e-4));
  const auto model = std::dynamic_pointer_cast<Gpt2>(fixture_task(file, options).module);
  model->eval();
  EXPECT_TRUE(at::allclose(model->forward(ids), plain, 1e-4, 1e-4));
}

TEST(Gpt2, generates_the_tokens_of_transformers_and_the_same_with_and_without_a_cache) {
  const auto file = gpt2_fixture();
  const Task task = fixture_task(file);
  const auto model = std::dynamic_pointer_cast<Gpt2>(task.module);
  model->eval();
  const at::NoGradGuard no_grad;
  const auto to_vector = [](const at::Tensor& ids) {
    return std::vector<int64_t>(ids.const_data_ptr<int64_t>(),
                                ids.const_data_ptr<int64_t>() + ids.numel());
  };
  const auto greedy = to_vector(file.tensors.at("greedy"));
  const std::vector<int64_t> prompt(greedy.begin(), greedy.begin() + 4);
  EXPECT_EQ(task.generate({.prompt = prompt, .tokens = 12, .temperature = 0}), greedy);
  // Beyond the context of 16 tokens, where the window moves.
  for (const double temperature : {0.0, 1.0}) {
    const GenerateRequest request{
        .prompt = prompt, .tokens = 60, .temperature = temperature, .top_k = 40, .seed = 4};
    const auto plain = generate(request, 16, 61, [&](const auto& tokens, int64_t begin) {
      const std::vector<int64_t> window(tokens.begin() + begin, tokens.end());
      return model->forward(at::tensor(window, at::kLong).unsqueeze(0)).select(1, -1).select(0, 0);
    });
    EXPECT_EQ(task.generate(request), plain) << temperature;
  }
}

TEST(Gpt2, continues_a_cache_by_several_tokens_at_once) {
  const auto file = gpt2_fixture();
  const auto model = std::dynamic_pointer_cast<Gpt2>(fixture_task(file).module);
  model->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor ids = file.tensors.at("inputs");
  Gpt2Cache cache;
  const TraceScope tracing;
  const at::Tensor parts =
      at::cat({model->states(ids.slice(1, 0, 5), &cache), model->states(ids.slice(1, 5, 6), &cache),
               model->states(ids.slice(1, 6, 13), &cache)},
              1);
  EXPECT_TRUE(at::allclose(parts, model->states(ids), 1e-4, 1e-5));
  EXPECT_EQ(cache.length, 13);
  int64_t kept = 0;
  for (const auto& event : tracing.trace()) {
    if (event.kind == MemoryKind::key_values) kept += event.bytes;
  }
  const auto& shape = model->shape();
  EXPECT_EQ(kept, 2 * shape.num_layers * ids.size(0) * shape.context_length * shape.hidden_size *
                      int64_t{sizeof(float)});
  EXPECT_THROW(model->states(ids.slice(1, 0, 4), &cache), Error);
}

TEST(Gpt2, classifies_the_last_token_as_transformers_in_scores_loss_and_gradients) {
  const auto file = read_safetensors(TANREN_SOURCE_DIR "/tests/fixtures/gpt2_classify.safetensors");
  DataInfo info = kTokens;
  info.outputs = 5;
  ModelOptions options = tiny_options();
  options.task = "guess";
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { gpt2_task(options, info); }),
                         "gpt2 has no task 'guess'; set next_token or classify");
  options.task = "classify";
  const Task task = gpt2_task(options, info);
  {
    const at::NoGradGuard no_grad;
    for (auto& item : task.module->named_parameters()) {
      item.value().copy_(file.tensors.at("parameter/" + item.key()));
    }
  }
  Batch batch;
  for (const char* name : {"inputs", "labels", "attention_mask"}) {
    batch.fields.set(name, file.tensors.at(name));
  }
  batch.ids = at::arange(4);
  EXPECT_LT(distance(task.predict(batch).outputs, file.tensors.at("logits")), 1e-5);
  const Term term = task.phases[0].forward(batch)[0];
  EXPECT_EQ(term.count_name, "samples");
  EXPECT_LT(distance(term.sum.detach(), file.tensors.at("loss")), 1e-5);
  term.sum.backward();
  for (const auto& item : task.module->named_parameters()) {
    EXPECT_LT(distance(item.value().grad(), file.tensors.at("gradient/" + item.key())), 1e-4)
        << item.key();
  }
  // Without a mask the last position is classified; with one, the values in padding do not matter.
  const auto model = std::dynamic_pointer_cast<Gpt2>(task.module);
  const at::Tensor mask = batch["attention_mask"];
  const at::Tensor other = batch["inputs"].masked_fill(mask.eq(0), 9);
  EXPECT_TRUE(at::equal(model->classify(other, mask), model->classify(batch["inputs"], mask)));
  const at::Tensor cut = batch["inputs"].slice(0, 1, 2).slice(1, 0, 7);
  EXPECT_LT(distance(model->classify(cut, {}), file.tensors.at("logits").slice(0, 1, 2)), 1e-5);
}

TEST(Gpt2, computes_in_bf16_under_autocast_with_a_loss_in_fp32_and_gradients_in_fp32) {
  const auto file = gpt2_fixture();
  ModelOptions options = tiny_options();
  options.dropout = 0.1;
  const Task task = fixture_task(file, options);
  const auto model = std::dynamic_pointer_cast<Gpt2>(task.module);
  const Batch batch = fixture_batch(file);
  const RandomScope scope(1, 2, batch.ids);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const at::Tensor logits = model->forward(batch["inputs"]);
  const Term term = task.phases[0].forward(batch)[0];
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_EQ(logits.scalar_type(), at::kBFloat16);
  EXPECT_EQ(term.sum.scalar_type(), at::kFloat);
  term.sum.backward();
  const Task exact = fixture_task(file, options);
  exact.phases[0].forward(batch)[0].sum.backward();
  const auto expected = exact.module->named_parameters();
  for (const auto& item : task.module->named_parameters()) {
    EXPECT_EQ(item.value().grad().scalar_type(), at::kFloat);
    EXPECT_LT(distance(item.value().grad(), expected[item.key()].grad()), 0.05) << item.key();
  }
}

}  // namespace
}  // namespace tanren
