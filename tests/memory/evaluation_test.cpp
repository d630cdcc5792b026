// An evaluation of a language model holds the scores of one chunk of tokens, never of its whole
// batch. Chunks change no metric, and any allocation may fail. An evaluation alone holds no state
// of training.
#include "tests/support/allocations.h"
#include "tests/support/tiny_run.h"

#include "tanren/base/eval_mode_scope.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/forecast/predict.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/run/run.h"
#include "tanren/train/answers.h"
#include "tanren/train/evaluate.h"
#include "tanren/train/predict.h"
#include "tanren/train/prepared.h"

#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <cstdio>
#include <new>

namespace tanren::testing {
namespace {

constexpr int64_t kVocab = 2000, kLength = 48, kSamples = 16;

RunConfig scores_config(const std::string& kind, int64_t chunk) {
  auto config = tiny_config(kind);
  config.model.num_layers = 1;
  config.model.hidden_size = 16;
  if (kind != "lstm") config.model.num_heads = 2;
  config.model.vocab_size = kVocab;
  config.model.loss_chunk = chunk;
  if (kind == "bert") config.model.task = "masked_lm";
  if (kind == "lstm") config.model.task = "next_token";
  config.data.train.samples = 2 * kSamples;
  config.data.train.fields = {"inputs: int[48] in [0, 1999]", "labels: int[48] in [0, 1999]"};
  config.batch.global_batch = "2";
  config.memory.limit = "8GiB";  // installs our allocator, under a sanitizer too
  return config;
}

struct ScoresRun : TinyRun {
  explicit ScoresRun(const RunConfig& config) : TinyRun(config) {
    parts.plan.evaluate.batch = kSamples;
    parts.plan.evaluate.metrics = {"accuracy", "top5", "f1_macro", "perplexity"};
  }
  EvaluationReport evaluated() const { return evaluate(state, parts, *dataset); }
};

class EvaluationMemory : public ::testing::Test {
 protected:
  void TearDown() override {
    fail_cpu_allocation(INT64_MAX);
    set_cpu_memory_limit(0);
    uninstall_cpu_allocator();
  }
};

void expect_same(const EvaluationReport& got, const EvaluationReport& expected, double tolerance) {
  ASSERT_EQ(got.values.size(), expected.values.size());
  for (size_t i = 0; i < got.values.size(); ++i) {
    const double wanted = expected.values[i].second;
    EXPECT_NEAR(got.values[i].second, wanted, tolerance * std::abs(wanted)) << got.values[i].first;
  }
  EXPECT_EQ(got.samples, expected.samples);
  EXPECT_EQ(got.tokens, expected.tokens);
}

TEST_F(EvaluationMemory, chunks_of_scores_change_no_metric) {
  for (const char* kind : {"gpt2", "bert", "lstm"}) {
    const auto expected = ScoresRun(scores_config(kind, 1 << 20)).evaluated();
    EXPECT_EQ(expected.tokens, 2 * kSamples * kLength);
    for (const int64_t chunk : {1000, 64, 7}) {
      expect_same(ScoresRun(scores_config(kind, chunk)).evaluated(), expected, 1e-12);
    }
  }
}

TEST_F(EvaluationMemory, is_that_of_a_chunk_of_scores_as_predicted) {
  const auto peak_of = [](int64_t chunk) {
    const auto config = scores_config("gpt2", chunk);
    const ScoresRun run(config);
    run.evaluated();
    const int64_t before = cpu_memory_stats().live_bytes;
    restart_cpu_memory_peak();
    run.evaluated();
    const int64_t peak = cpu_memory_stats().recent_peak_bytes - before;
    const auto make = [&] { return build_task(config, ModelRegistry(), *run.dataset); };
    const StepPredictor predictor(make, *run.dataset);
    const int64_t predicted = predictor.evaluation_peak(run.parts.plan, kSamples) -
                              predictor.step(run.parts.plan).before_bytes;
    std::printf("evaluation in chunks of %lld: %lld bytes, predicted %lld\n",
                static_cast<long long>(chunk), static_cast<long long>(peak),
                static_cast<long long>(predicted));
    EXPECT_NEAR(static_cast<double>(predicted) / static_cast<double>(peak), 1, 0.1);
    return peak;
  };
  const int64_t scores = kSamples * kLength * kVocab * int64_t{sizeof(double)};
  EXPECT_GT(peak_of(1 << 20), scores);
  EXPECT_LT(peak_of(64), scores / 4);
}

// A run whose weights are most of what its evaluation holds.
RunConfig heavy_config(const char* mode, const char* average) {
  auto config = tiny_config("mlp");
  config.run.steps = 2;
  config.run.device = "cpu";
  config.model.hidden = {512, 512, 512};
  config.data.train.fields = {"inputs: float[512] in [-1, 1]", "labels: int[] in [0, 4]"};
  config.data.train.samples = 16;
  config.data.eval = config.data.train;
  config.batch.global_batch = "8";
  config.precision.mode = mode;
  config.average.kind = average;
  config.memory.limit = "8GiB";
  return config;
}

TEST_F(EvaluationMemory, of_a_run_alone_is_weights_buffers_and_activations_as_predicted) {
  struct Case {
    const char* mode;
    const char* average;
    double bytes;  // of a parameter: fp32, and its cast
  };
  for (const auto& [mode, average, bytes] :
       {Case{"fp32", "none", 4}, Case{"fp32", "ema", 4}, Case{"bf16", "none", 6}}) {
    const TemporaryFolder folder;
    const auto place = folder.path() / "run";
    const auto config = heavy_config(mode, average);
    run({.config = config, .folder = place}, {});
    const auto dataset = open_dataset(config.data.train, "data.train");
    const auto make = [&] { return build_task(config, ModelRegistry(), *dataset); };
    const Plan plan = plan_only(config, ModelRegistry(), {}, {});
    const auto predicted = static_cast<double>(
        StepPredictor(make, *dataset).evaluation_peak(plan, plan.evaluate.batch, /*trains=*/false));
    double elements = 0;
    for (const auto& parameter : make().module->parameters()) {
      elements += static_cast<double>(parameter.numel());
    }
    const auto expect_peak = [&](const char* what, const auto& evaluate) {
      const int64_t before = cpu_memory_stats().live_bytes;
      restart_cpu_memory_peak();
      evaluate();
      const auto peak = static_cast<double>(cpu_memory_stats().recent_peak_bytes - before);
      std::printf("%s %s, %s: %.2f bytes a parameter, predicted %.2f\n", mode, average, what,
                  peak / elements, predicted / elements);
      EXPECT_NEAR(predicted / peak, 1, 0.05) << mode << " " << average << " " << what;
      EXPECT_LT(peak / elements, bytes + 0.6) << mode << " " << average << " " << what;
      EXPECT_GT(peak / elements, bytes) << mode << " " << average << " " << what;
    };
    expect_peak("checkpoint", [&] {
      const auto checkpoint = *latest_checkpoint(place / "checkpoints");
      const auto got = evaluate_checkpoint(config, checkpoint, ModelRegistry(), nullptr);
      EXPECT_EQ(got.report.averaged, std::string(average) == "ema");
    });
    expect_peak("whole model", [&] {
      evaluate_whole_model(place / kWholeFile, "", {"memory.limit=8GiB"}, Registry(), nullptr);
    });
  }
}

// Each tensor of the file is converted as it is taken.
TEST_F(EvaluationMemory, of_a_file_in_fp64_is_that_of_the_precision_that_is_asked_for) {
  const TemporaryFolder folder;
  const auto place = folder.path() / "run";
  const auto config = heavy_config("fp64", "none");
  run({.config = config, .folder = place}, {});
  const auto dataset = open_dataset(config.data.train, "data.train");
  double elements = 0;
  for (const auto& item : build_task(config, ModelRegistry(), *dataset).module->parameters()) {
    elements += static_cast<double>(item.numel());
  }
  for (const auto& [mode, bytes, activations] :
       {std::tuple{"fp32", 4, 0.6}, std::tuple{"fp64", 8, 1.6}}) {
    const int64_t before = cpu_memory_stats().live_bytes;
    restart_cpu_memory_peak();
    evaluate_whole_model(place / kWholeFile, "",
                         {"memory.limit=8GiB", std::string("precision.mode=") + mode}, Registry(),
                         nullptr);
    const auto peak = static_cast<double>(cpu_memory_stats().recent_peak_bytes - before);
    EXPECT_LT(peak / elements, bytes + activations) << mode;
    EXPECT_GT(peak / elements, bytes) << mode;
  }
}

// Scores are processed within the attempt: if memory runs out there, the rows are halved.
TEST_F(EvaluationMemory, may_lack_what_its_scores_are_looked_at_with) {
  const ScoresRun run(scores_config("gpt2", 100));
  const at::NoGradGuard no_grad;
  const EvalModeScope eval_mode(*run.state.task.module);
  const Batch batch = prepared(run.dataset->collate({0, 1, 2, 3}).batch, run.state.task, run.parts);
  Answers expected({AnswerKind::tokens}, "predict"), got({AnswerKind::tokens}, "predict");
  int64_t shortages = 0;
  EXPECT_FALSE(predict(run.state, run.parts, batch,
                       [&](const Prediction& prediction) { expected.add(prediction); }));
  const auto take = [&](const Prediction& prediction) {
    if (prediction.outputs.size(0) > 30) {
      ++shortages;
      throw std::bad_alloc();
    }
    got.add(prediction);
  };
  EXPECT_FALSE(predict(run.state, run.parts, batch, take, Taking::in_attempt));
  EXPECT_EQ(shortages, 2) << "of 100 rows, and of 50";
  const auto one = expected.take(4), other = got.take(4);
  for (size_t i = 0; i < 4; ++i) {
    ASSERT_EQ(one[i].tokens.size(), static_cast<size_t>(kLength));
    ASSERT_EQ(other[i].tokens.size(), one[i].tokens.size());
    for (size_t j = 0; j < one[i].tokens.size(); ++j) {
      EXPECT_EQ(other[i].tokens[j].token, one[i].tokens[j].token);
      EXPECT_NEAR(other[i].tokens[j].log_probability, one[i].tokens[j].log_probability, 1e-6);
    }
  }
}

TEST_F(EvaluationMemory, any_of_its_allocations_may_fail_once) {
  const ScoresRun run(scores_config("gpt2", 100));
  const auto expected = run.evaluated();
  int64_t failed = 0;
  const int64_t stride = allocation_stride(29);
  for (int64_t index = first_allocation(stride);; index += stride) {
    SCOPED_TRACE("allocation " + std::to_string(index));
    fail_cpu_allocation(index);
    const auto got = run.evaluated();
    if (cpu_allocations_until_failure() >= 0) break;
    expect_same(got, expected, 1e-12);
    ++failed;
  }
  std::printf("evaluation: %lld allocations failed\n", static_cast<long long>(failed));
  EXPECT_GT(failed, 50);
}

}  // namespace
}  // namespace tanren::testing
