#include "tanren/model/beam_search.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/formats/safetensors.h"
#include "tanren/model/gpt2.h"
#include "tanren/model/lstm.h"

#include <nlohmann/json.hpp>
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <map>

namespace tanren::beam_search_test {
namespace {

// Reads all tokens again for each token. A reader with a cache must give the same scores.
class PlainReader : public TokenReader {
 public:
  using Forward = std::function<at::Tensor(const at::Tensor&)>;
  explicit PlainReader(Forward forward) : forward_(std::move(forward)) {}
  void forget() override { ids_ = at::Tensor(); }
  void reorder(const at::Tensor& rows) override { ids_ = ids_.index_select(0, rows); }
  at::Tensor read(const at::Tensor& ids) override {
    ids_ = ids_.defined() ? at::cat({ids_, ids}, 1) : ids;
    return forward_(ids_).select(1, -1);
  }

 private:
  Forward forward_;
  at::Tensor ids_;
};

// Scores that depend on the last token alone.
class TableReader : public TokenReader {
 public:
  explicit TableReader(at::Tensor probabilities) : scores_(probabilities.log()) {}
  void forget() override {}
  void reorder(const at::Tensor&) override {}
  at::Tensor read(const at::Tensor& ids) override {
    return scores_.index_select(0, ids.select(1, ids.size(1) - 1));
  }

 private:
  at::Tensor scores_;
};

TEST(BeamSearch, refuses_stop_tokens_that_the_data_has_not_and_scores_that_are_no_numbers) {
  TableReader reader(at::full({4, 4}, std::nan("")));
  GenerateRequest request{.prompt = {0}, .tokens = 2, .num_beams = 2, .stop_token = 4};
  TANREN_EXPECT_CONTAINS(testing::error_of<ConfigError>([&] { generate(request, 8, 4, reader); }),
                         "stop_token is 4, and the data has tokens 0 to 3");
  request.stop_token = -1;
  EXPECT_THROW(generate(request, 8, 4, reader), RunError);
}

TEST(BeamSearch, finds_the_text_that_the_greedy_choice_misses) {
  // From 0, token 1 is likelier than 2; but what follows 2 is certain.
  TableReader reader(at::tensor({0.0, 0.6, 0.4, 0.0,  //
                                 0.3, 0.3, 0.2, 0.2,  //
                                 0.0, 0.0, 0.0, 1.0,  //
                                 0.25, 0.25, 0.25, 0.25})
                         .view({4, 4}));
  GenerateRequest request{.prompt = {0}, .tokens = 2, .temperature = 0};
  EXPECT_EQ(generate(request, 8, 4, reader), (std::vector<int64_t>{0, 1, 0}));
  request.num_beams = 2;
  EXPECT_EQ(generate(request, 8, 4, reader), (std::vector<int64_t>{0, 2, 3}));
  request.tokens = 0;
  EXPECT_EQ(generate(request, 8, 4, reader), request.prompt);
}

TEST(BeamSearch, with_more_beams_than_texts_takes_those_there_are) {
  TableReader reader(at::tensor({0.5, 0.5, 0.9, 0.1}).view({2, 2}));
  const GenerateRequest request{.prompt = {1}, .tokens = 3, .num_beams = 50};
  EXPECT_EQ(generate(request, 8, 2, reader).front(), 1);
  EXPECT_EQ(generate(request, 8, 2, reader).size(), 4u);
}

TEST(Sampling, ends_with_the_stop_token) {
  TableReader reader(at::tensor({0.0, 1.0, 1.0, 0.0}).view({2, 2}));
  const GenerateRequest request{.prompt = {1}, .tokens = 9, .stop_token = 1};
  EXPECT_EQ(generate(request, 8, 2, reader), (std::vector<int64_t>{1, 0, 1}));
}

std::shared_ptr<Gpt2> fixture_model(Task& task) {
  const auto file = read_safetensors(TANREN_SOURCE_DIR "/tests/fixtures/gpt2.safetensors");
  task = gpt2_task({.kind = "gpt2",
                    .num_layers = 3,
                    .num_heads = 3,
                    .hidden_size = 24,
                    .intermediate_size = 80,
                    .context_length = 16,
                    .layer_norm_eps = 2e-5},
                   {.input_shape = {13}, .vocab_size = 61});
  auto model = std::dynamic_pointer_cast<Gpt2>(task.module);
  const at::NoGradGuard no_grad;
  for (auto& parameter : model->named_parameters()) {
    parameter.value().copy_(file.tensors.at("parameter/" + parameter.key()));
    if (parameter.key() == "transformer.ln_f.weight") parameter.value().mul_(-0.5);
    if (parameter.key() == "transformer.ln_f.bias") parameter.value().zero_();
  }
  model->eval();
  return model;
}

TEST(Gpt2Beams, are_those_of_transformers_token_by_token) {
  Task task;
  fixture_model(task);
  const at::NoGradGuard no_grad;
  const auto cases =
      nlohmann::json::parse(read_file(TANREN_SOURCE_DIR "/tests/fixtures/generate.json"));
  ASSERT_GT(cases.size(), 50u);
  for (const auto& item : cases) {
    const GenerateRequest request{.prompt = item["prompt"].get<std::vector<int64_t>>(),
                                  .tokens = item["tokens"].get<int64_t>(),
                                  .num_beams = item["num_beams"].get<int64_t>(),
                                  .length_penalty = item["length_penalty"].get<double>(),
                                  .stop_token = item["stop_token"].get<int64_t>()};
    EXPECT_EQ(task.generate(request), item["output"].get<std::vector<int64_t>>()) << item;
  }
}

TEST(Gpt2Beams, are_the_same_with_and_without_a_cache_where_the_window_moves) {
  Task task;
  const auto model = fixture_model(task);
  const at::NoGradGuard no_grad;
  PlainReader plain([&](const at::Tensor& ids) { return model->forward(ids); });
  const GenerateRequest request{.prompt = {3, 1, 4}, .tokens = 40, .num_beams = 5};
  EXPECT_EQ(task.generate(request), generate(request, 16, 61, plain));
}

TEST(LstmText, is_the_same_with_its_state_carried_and_read_again_each_time) {
  at::manual_seed(4);
  ModelOptions options{.kind = "lstm", .num_layers = 2, .hidden_size = 12};
  options.task = "next_token";
  options.embedding_size = 8;
  options.dropout = 0.5;
  const Task task = lstm_task(options, {.input_shape = {9}, .vocab_size = 17});
  const auto model = std::dynamic_pointer_cast<Lstm>(task.module);
  const at::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.mul_(4);  // far from uniform
  model->eval();
  PlainReader plain([&](const at::Tensor& ids) { return model->forward(ids, {}); });
  for (const GenerateRequest& request :
       {GenerateRequest{.prompt = {3, 1, 4}, .tokens = 50, .temperature = 0},
        GenerateRequest{.prompt = {3}, .tokens = 50, .top_k = 9, .seed = 7},
        GenerateRequest{.prompt = {3, 1, 4}, .tokens = 50, .num_beams = 4, .stop_token = 2}}) {
    const auto text = task.generate(request);
    EXPECT_EQ(text, generate(request, kNoContext, 17, plain));
    EXPECT_GT(text.size(), request.prompt.size());
  }
}

}  // namespace
}  // namespace tanren::beam_search_test
