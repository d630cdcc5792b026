// A transformer with dropout everywhere: the split into microbatches does not change a run, and a
// state that was saved and loaded continues bitwise.
#include "tests/support/tiny_run.h"
#include "tests/support/token_data.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/one_line.h"
#include "tanren/base/testing.h"
#include "tanren/base/text.h"
#include "tanren/data/text/tokenizer.h"
#include "tanren/run/sample.h"

#include <gtest/gtest.h>

#include <memory>

namespace tanren::testing {
namespace {

RunConfig gpt2_config() {
  auto config = tiny_config("gpt2");
  config.model.num_layers = 2;
  config.model.num_heads = 2;
  config.model.hidden_size = 16;
  config.model.context_length = 16;
  config.model.dropout = 0.1;
  config.model.initializer_range = 0.1;
  config.clip.norm = 0.5;
  return config;
}

TinyRun gpt2_run(const RunConfig& config, const TokenData& data) {
  return TinyRun(config, &data, build_task(config, ModelRegistry(), data));
}

class Gpt2Split : public ::testing::TestWithParam<int64_t> {};

TEST_P(Gpt2Split, with_unequal_token_counts_gives_the_whole_batchs_weights_through_10_adamw_steps) {
  const TokenData data;
  auto config = gpt2_config();
  TinyRun whole = gpt2_run(config, data);
  config.batch.microbatch = GetParam();
  TinyRun split = gpt2_run(config, data);
  const auto before = whole.weights();
  const auto expected = whole.steps(10), got = split.steps(10);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i].objectives[0].loss, expected[i].objectives[0].loss, 1e-12);
  }
  EXPECT_GT(relative(whole.weights(), before), 1e-3);
  EXPECT_LT(relative(split.weights(), whole.weights()), 1e-10);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Gpt2Split, ::testing::Values(15, 10, 7, 1));

TEST(Gpt2Run, gives_the_whole_batchs_fp32_gradient_to_1e6_of_its_norm) {
  const TokenData data;
  auto config = gpt2_config();
  config.precision.mode = "fp32";
  TinyRun whole = gpt2_run(config, data);
  config.batch.microbatch = 7;
  TinyRun split = gpt2_run(config, data);
  whole.step();
  split.step();
  EXPECT_LT(relative(split.gradients(), whole.gradients()), 1e-6);
}

TEST(Gpt2Run, that_is_saved_and_loaded_between_updates_goes_on_bitwise) {
  const TokenData data;
  for (const char* mode : {"fp32", "bf16"}) {
    auto config = gpt2_config();
    config.precision.mode = mode;
    config.batch.microbatch = 8;
    TinyRun straight = gpt2_run(config, data);
    straight.steps(6);
    TinyRun first = gpt2_run(config, data);
    first.steps(3);
    TinyRun second = gpt2_run(config, data);
    second.state.load(second.parts.device, {first.state.model_tensors(), {}},
                      first.state.optimizer_state(), first.state.run_state(first.parts.device));
    second.use_loader(0, 1);
    second.steps(3);
    EXPECT_TRUE(at::equal(second.weights(), straight.weights())) << mode;
  }
}

TEST(Gpt2Run, learns_what_can_be_known) {
  const TokenData data(64);
  auto config = gpt2_config();
  config.precision.mode = "fp32";
  TinyRun run = gpt2_run(config, data);
  const auto reports = run.steps(60);
  EXPECT_LT(reports.back().objectives[0].loss, 0.7 * reports.front().objectives[0].loss);
}

TEST(Sample, refuses_prompts_that_the_data_does_not_have) {
  const TokenData data;
  TinyRun run = gpt2_run(gpt2_config(), data);
  const auto error_for = [&](const char* prompt) {
    run.parts.plan.generate.prompt = prompt;
    return error_of<ConfigError>([&] { write_sample(run.state, run.parts); });
  };
  TANREN_EXPECT_CONTAINS(error_for("1 two"), "prompt has \"two\"");
  TANREN_EXPECT_CONTAINS(error_for("1 23"), "holds token 23, and the data has tokens 0 to 22");
  run.parts.plan.data.train.kind = "text";
  TANREN_EXPECT_CONTAINS(error_for("abc"), "holds token 97");
}

// Replaces the model's generation by one that writes `tokens`, and reports each of them if `tells`.
void let_write(TinyRun& run, const std::vector<int64_t>& tokens, bool tells) {
  run.state.task.generate = [tokens, tells](const GenerateRequest& request) {
    std::vector<int64_t> all = request.prompt;
    for (const int64_t token : tokens) {
      all.push_back(token);
      if (tells && request.see) request.see(token);
    }
    return all;
  };
}

DataInfo info_of_bpe() {
  const std::string name = "tokenizer.json";
  DataInfo info;
  info.tokenizer = std::make_shared<const TokenizerFiles>(
      TokenizerFiles{{name, read_file(TANREN_SOURCE_DIR "/tests/fixtures/tokenizer/bpe.json")}});
  return info;
}

TEST(Sample, is_passed_on_in_whole_characters_as_it_comes) {
  const TokenData data;
  TinyRun run = gpt2_run(gpt2_config(), data);
  run.parts.plan.data.train.kind = "text";
  run.parts.plan.generate.prompt = "a ";
  // "é", an invalid byte, "日", a bell character, "b", and an incomplete character.
  const std::string bytes =
      "\xC3\xA9\xFF\xE6\x97\xA5\a"
      "b\xE6\x97";
  std::vector<int64_t> tokens;
  for (const unsigned char byte : bytes) tokens.push_back(byte);
  for (const bool tells : {true, false}) {
    let_write(run, tokens, tells);
    std::vector<std::string> parts;
    const SampleWays ways{.see = [&](std::string_view part) { parts.emplace_back(part); }};
    const auto text = write_sample(run.state, run.parts, {}, ways);
    ASSERT_TRUE(text);
    EXPECT_EQ(*text, "a \u00e9\uFFFD\u65e5\uFFFDb\uFFFD");
    std::string joined;
    for (const auto& part : parts) {
      joined += part;
      EXPECT_EQ(utf8_text(part), part) << "whole characters";
    }
    EXPECT_EQ(joined, *text);
    EXPECT_GE(parts.size(), 7u);
    EXPECT_EQ(write_sample(run.state, run.parts), text) << "nobody looks on";
  }
}

TEST(Sample, is_text_by_the_tokenizer_of_the_data) {
  const TokenData data;
  TinyRun run = gpt2_run(gpt2_config(), data);
  const DataInfo info = info_of_bpe();
  const auto tokenizer = load_tokenizer(*info.tokenizer, "tokenizer");
  const std::string text = " blade \u65e5\u672c, na\u00efve \U0001F600 end";
  const TokenIds ids = tokenizer->encode(text);
  let_write(run, {ids.begin(), ids.end()}, true);
  run.parts.plan.generate.prompt = "the";
  std::string joined;
  const SampleWays ways{.see = [&](std::string_view part) {
    EXPECT_EQ(utf8_text(part), part);
    joined += part;
  }};
  EXPECT_EQ(write_sample(run.state, run.parts, info, ways), "the" + text);
  EXPECT_EQ(joined, "the" + text);
  // Without a prompt, generation begins after the end-of-text token, which is not shown.
  run.parts.plan.generate.prompt.clear();
  EXPECT_EQ(write_sample(run.state, run.parts, info), text);
  run.state.task.generate = [](const GenerateRequest& request) { return request.prompt; };
  EXPECT_EQ(write_sample(run.state, run.parts, info), "");
  // A model may have more tokens than the tokenizer.
  let_write(run, {5000}, true);
  EXPECT_EQ(write_sample(run.state, run.parts, info), "\uFFFD");
}

TEST(Sample, of_a_prompt_longer_than_the_context_is_refused_where_all_of_it_is_wanted) {
  const TokenData data;
  TinyRun run = gpt2_run(gpt2_config(), data);
  const int64_t context = run.state.task.context_length;
  ASSERT_GT(context, 1);
  std::string& prompt = run.parts.plan.generate.prompt;
  for (int64_t i = 0; i <= context; ++i) prompt += "1 ";
  run.parts.plan.generate.tokens = 2;
  const SampleWays ways{.reads_prompt = true};
  TANREN_EXPECT_CONTAINS(
      error_of<ConfigError>([&] { write_sample(run.state, run.parts, {}, ways); }),
      fmt::format("the prompt has {} tokens, and the model reads {} at once", context + 1,
                  context));
  EXPECT_TRUE(write_sample(run.state, run.parts)) << "tanren eval takes its end";
  prompt = prompt.substr(2);
  EXPECT_TRUE(write_sample(run.state, run.parts, {}, ways));
}

TEST(Sample, goes_on_from_the_prompt_by_every_option_and_leaves_the_model_as_it_was) {
  const TokenData data;
  for (const char* mode : {"fp64", "bf16"}) {
    auto config = gpt2_config();
    config.precision.mode = mode;
    config.generate = {.prompt = "3 1 4", .tokens = 30};
    TinyRun run = gpt2_run(config, data);
    const auto text_with = [&](auto&& change) {
      run.parts.plan.generate = config.generate;
      change(run.parts.plan.generate);
      return write_sample(run.state, run.parts);
    };
    const auto plain = text_with([](auto&) {});
    EXPECT_EQ(plain->substr(0, 6), "3 1 4 ");
    EXPECT_EQ(text_with([](auto&) {}), plain);
    EXPECT_NE(text_with([](auto& o) { o.prompt = ""; }), plain);
    EXPECT_NE(text_with([](auto& o) { o.tokens = 31; }), plain);
    EXPECT_NE(text_with([](auto& o) { o.temperature = 0; }), plain);
    EXPECT_NE(text_with([](auto& o) { o.top_k = 2; }), plain);
    EXPECT_NE(text_with([](auto& o) { o.top_p = 0.1; }), plain);
    EXPECT_NE(text_with([](auto& o) { o.seed = 1; }), plain);
    EXPECT_NE(text_with([](auto& o) { o.num_beams = 3; }), plain);
    const auto drawn = std::stoll(plain->substr(6));
    EXPECT_EQ(text_with([&](auto& o) { o.stop_token = drawn; }), "3 1 4 " + std::to_string(drawn));
    EXPECT_EQ(text_with([](auto& o) { o.tokens = 0; }), std::nullopt);
    EXPECT_TRUE(run.state.task.module->is_training());
  }
}

TEST(Sample, of_bytes_is_valid_text_that_is_safe_on_a_terminal) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(printable("a\n\tb \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"),
            "a\n\tb \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80");
  EXPECT_EQ(printable("\x1B[2J"), bad + "[2J");
  EXPECT_EQ(printable(std::string("\0\r\x7F", 3)), bad + bad + bad);
  EXPECT_EQ(printable("\xC2\x9B"), bad);                  // a control character too
  EXPECT_EQ(printable("\xC3"), bad);                      // cut off
  EXPECT_EQ(printable("\x80\xFF"), bad + bad);            // cannot start a character
  EXPECT_EQ(printable("\xC0\xAF"), bad + bad);            // overlong form
  EXPECT_EQ(printable("\xED\xA0\x80"), bad + bad + bad);  // half of a surrogate pair
  // Bytes that could begin a character count as one, as Python and Rust decode them.
  EXPECT_EQ(printable("\xE2\x82z\xF0\x9F\x98"), bad + "z" + bad);
}

}  // namespace
}  // namespace tanren::testing
