// Quantisation-aware training in fp64: what it guarantees for microbatches, ranks, recomputation
// and resuming. Also its memory use, and that its 8-bit model answers as its evaluations did.
#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/data/collated.h"
#include "tanren/interop/export.h"
#include "tanren/interop/whole_model.h"
#include "tanren/run/prepare.h"
#include "tanren/run/run.h"
#include "tanren/train/quantized_training.h"
#include "tests/support/rank_run.h"
#include "tests/support/step_peaks.h"
#include "tests/support/token_data.h"

#include <gtest/gtest.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kUpdates = 10;
constexpr double kSameInFp64 = 1e-10;
// The gradient of a scale has jumps and steep slopes between them: with the model of words and the
// scheme static, each update makes a rounding difference in a scale about ten times larger (1 and 2
// ranks: 3e-10 of it after ten updates). Measured after six: at most 8e-15 of all weights, for
// every scheme, number of ranks and microbatch below. Images after ten: at most 8e-14.
constexpr int kUpdatesOfRanks = 6;
constexpr double kSameOnRanks = 1e-12;

// The start of a training: found, folded and calibrated once.
struct Begun {
  RunConfig config;
  const Dataset& data;
  FakeQuantization how;
  TensorMap start;

  Begun(RunConfig asked, const Dataset& given) : config(std::move(asked)), data(given) {
    const Task plain = build_task(config, ModelRegistry(), data);
    how = find_quantization(plain, config, data);
    const Task task = fake_quantized(plain, how);
    Plan plan;
    plan.quantize = {.scheme = how.scheme, .samples = 32};
    (void)begin_quantized(plain, how, plan, data);
    for (const auto& [name, tensor] : tensors_of(*task.module)) {
      start.set(name, tensor.detach().clone());
    }
  }

  // Another module with the same start. Makes no dry run, so that ranks can call it.
  Task task() const {
    Task own = fake_quantized(build_task(config, ModelRegistry(), data), how);
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : tensors_of(*own.module)) {
      tensor.detach().copy_(start.at(name));
    }
    return own;
  }
  // Weights and scales after ten updates with the config `asked`.
  at::Tensor trained(const RunConfig& asked) const {
    TinyRun run(asked, &data, task());
    run.steps(kUpdates);
    return run.weights();
  }
};

RunConfig images_config(const std::string& scheme) {
  auto config = tiny_config("convnet");
  config.run.device = "cpu";
  config.model.norm = "batch";
  config.quantize.scheme = scheme;
  config.quantize.samples = 32;
  return config;
}

RunConfig words_config(const std::string& scheme) {
  auto config = ranks_config("fp64");
  config.run.device = "cpu";
  config.quantize.scheme = scheme;
  config.quantize.samples = 32;
  return config;
}

class Schemes : public ::testing::TestWithParam<const char*> {};

TEST_P(Schemes, train_alike_in_microbatches_of_any_size) {
  const auto config = images_config(GetParam());
  const auto images = open_dataset(config.data.train, "data.train");
  const Begun begun(config, *images);
  EXPECT_TRUE(couples_samples(build_task(config, ModelRegistry(), *images)));
  EXPECT_FALSE(couples_samples(begun.task())) << "batch norms are in eval mode";
  const at::Tensor whole = begun.trained(config);
  for (const int64_t microbatch : {7, 1}) {
    auto split = config;
    split.batch.microbatch = microbatch;
    EXPECT_LT(relative(begun.trained(split), whole), kSameInFp64) << microbatch;
  }
  auto recomputed = config;
  recomputed.memory.recompute = {"*"};
  EXPECT_TRUE(at::equal(begun.trained(recomputed), whole));
}

TEST_P(Schemes, train_alike_on_any_number_of_ranks) {
  const auto config = words_config(GetParam());
  const TokenData words(38);
  const Begun begun(config, words);
  const auto trained = [&](const RunConfig& asked, int ranks) {
    at::Tensor weights;
    on_engine("threads", ranks, [&](Communicator& comm) {
      RankRun run(asked, words, comm, [&] { return begun.task(); });
      for (int i = 0; i < kUpdatesOfRanks; ++i) run.step();
      if (comm.rank() == 0) weights = run.weights();
    });
    return weights;
  };
  const at::Tensor alone = trained(config, 1);
  for (const int ranks : {2, 3}) {
    EXPECT_LT(relative(trained(config, ranks), alone), kSameOnRanks) << ranks;
  }
  auto sharing = config;
  sharing.parallel.zero = 2;
  EXPECT_LT(relative(trained(sharing, 2), alone), kSameOnRanks);
  auto split = config;
  split.batch.microbatch = 5;
  split.memory.recompute = {"*"};
  EXPECT_LT(relative(trained(split, 1), alone), kSameOnRanks);
}

INSTANTIATE_TEST_SUITE_P(QuantizationAware, Schemes,
                         ::testing::Values("weights", "dynamic", "static"));

TEST(QuantizationAware, trains_the_scales_of_inputs_and_leaves_statistics_and_zero_points) {
  const auto config = images_config("static");
  const auto images = open_dataset(config.data.train, "data.train");
  const Begun begun(config, *images);
  TinyRun run(config, images.get(), begun.task());
  run.state.task.module->train();  // as unfreezing a part of a model does
  run.steps(3);
  int scales = 0, zero_points = 0, statistics = 0;
  for (const auto& [name, tensor] : tensors_of(*run.state.task.module)) {
    const at::Tensor before = begun.start.at(name).to(tensor.scalar_type());
    if (name.ends_with(".input_scale")) {
      ++scales;
      EXPECT_NE(tensor.item<double>(), before.item<double>()) << name;
      EXPECT_NE(before.item<double>(), 1) << name;
    } else if (name.ends_with(".input_zero_point")) {
      ++zero_points;
      EXPECT_TRUE(at::equal(tensor, before)) << name;
    } else if (name.find("running_") != std::string::npos ||
               name.ends_with("num_batches_tracked")) {
      ++statistics;
      EXPECT_TRUE(at::equal(tensor, before)) << name;
    }
  }
  EXPECT_GT(scales, 5);
  EXPECT_EQ(scales, zero_points);
  EXPECT_GT(statistics, 5);
}

TEST(QuantizationAware, lets_weights_decay_and_no_scale) {
  const auto config = images_config("static");
  const auto images = open_dataset(config.data.train, "data.train");
  const Begun begun(config, *images);
  const auto after_one_update = [&](double decay, bool in_a_group) {
    auto asked = config;
    asked.optimizer.kind = "sgd";
    asked.optimizer.weight_decay = in_a_group ? 0 : decay;
    if (in_a_group) asked.optimizer.groups = {{{"*"}, {}, decay}};
    TinyRun run(asked, images.get(), begun.task());
    run.step();
    TensorMap all;
    for (const auto& [name, tensor] : tensors_of(*run.state.task.module)) {
      all.set(name, tensor.detach().clone());
    }
    return all;
  };
  const TensorMap plain = after_one_update(0, false);
  for (const bool in_a_group : {false, true}) {
    for (const auto& [name, tensor] : after_one_update(0.5, in_a_group)) {
      if (name.ends_with("input_scale")) {
        EXPECT_TRUE(at::equal(tensor, plain.at(name))) << name;
      } else if (tensor.dim() == 4) {
        EXPECT_FALSE(at::equal(tensor, plain.at(name))) << name;
      }
    }
  }
}

class QatPrediction : public StepPeaksTest {};

TEST_F(QatPrediction, is_what_the_step_takes) {
  for (const std::string kind : {"gpt2", "convnet"}) {
    auto config = images_config("static");
    config.model.kind = kind;
    config.memory.limit = "16GiB";  // installs our allocator, under a sanitizer too
    config.precision.mode = "fp32";
    config.batch.global_batch = "8";
    if (kind == "gpt2") {
      config.model = tiny_config("gpt2").model;
      config.model.num_layers = 2;
      config.model.hidden_size = 128;
      config.model.num_heads = 2;
      config.model.vocab_size = 500;
      config.data.train.fields = {"inputs: int[64] in [0, 49]", "labels: int[64] in [0, 49]"};
    } else {
      config.data.train.fields = {"inputs: float[3,64,64] in [-1, 1]", "labels: int[] in [0, 4]"};
    }
    const auto data = open_dataset(config.data.train, "data.train");
    const Begun begun(config, *data);
    const auto task = [&] {
      return fake_quantized(build_task(config, ModelRegistry(), *data), begun.how);
    };
    const StepPeaks plain = step_peaks(config);
    for (const bool recomputes : {false, true}) {
      if (recomputes) config.memory.recompute = {"*"};
      const StepPeaks peaks = step_peaks(config, task);
      EXPECT_LE(std::abs(peaks.error()), 0.03)
          << kind << " " << recomputes << ": " << peaks.predicted << ", " << peaks.measured;
      EXPECT_TRUE(recomputes || peaks.predicted > plain.predicted) << kind;
    }
  }
}

class QatRun : public ::testing::Test {
 protected:
  RunOutput go(const RunConfig& config, const std::string& folder) {
    return run({.config = config, .folder = place(folder), .sinks = {}}, test_registry());
  }
  fs::path place(const std::string& folder) const { return folder_.path() / folder; }
  fs::path last(const std::string& folder) const {
    return *latest_checkpoint(place(folder) / "checkpoints");
  }
  TensorMap weights(const std::string& folder) const {
    return read_checkpoint(last(folder)).model.tensors;
  }
  static RunConfig short_config(const std::string& mode = "fp64") {
    auto config = images_config("static");
    config.precision.mode = mode;
    config.run.steps = 6;
    config.data.eval = config.data.train;
    config.data.eval.samples = 31;
    config.evaluate.every = 3;
    config.checkpoint.every = 2;
    return config;
  }

  TemporaryFolder folder_;
};

TEST_F(QatRun, resumes_bitwise) {
  auto config = short_config();
  go(config, "undisturbed");
  config.run.stop_after = 3;
  go(config, "stopped");
  config.run.stop_after.reset();
  go(config, "stopped");
  const Snapshot one = read_checkpoint(last("undisturbed"));
  const Snapshot other = read_checkpoint(last("stopped"));
  EXPECT_EQ(one.model.tensors.size(), other.model.tensors.size());
  for (const auto& [name, tensor] : one.model.tensors) {
    EXPECT_TRUE(at::equal(tensor, other.model.tensors.at(name))) << name;
  }
  for (const auto& [name, tensor] : one.optimizer.tensors) {
    EXPECT_TRUE(at::equal(tensor, other.optimizer.tensors.at(name))) << name;
  }
}

// With parallel.zero each rank updates slices of parameters. Slices of scales do not decay.
TEST_F(QatRun, on_ranks_that_are_threads_is_that_of_one_rank) {
  auto config = short_config();
  config.optimizer.weight_decay = 0.5;
  config.optimizer.decay_norms_and_biases = true;
  go(config, "one");
  config.parallel.ranks = "threads";
  config.parallel.replicas = 2;
  config.run.threads = 2;
  for (const int64_t zero : {0, 1}) {
    config.parallel.zero = zero;
    const std::string place = "two, zero " + std::to_string(zero);
    go(config, place);
    const TensorMap two = weights(place);
    for (const auto& [name, tensor] : weights("one")) {
      if (!tensor.is_floating_point()) {
        EXPECT_TRUE(at::equal(tensor, two.at(name))) << place << ", " << name;
      } else {
        EXPECT_LT((two.at(name) - tensor).norm().item<double>(),
                  kSameInFp64 * (1 + tensor.norm().item<double>()))
            << place << ", " << name;
      }
    }
  }
}

// Norms are folded only at step 0, so a fork of a plain run is refused.
TEST_F(QatRun, is_no_fork_of_a_plain_run) {
  auto config = short_config("fp32");
  config.quantize = QuantizeOptions();
  go(config, "plain");
  config.quantize.scheme = "weights";
  config.run.fork_from = place("plain").string();
  TANREN_EXPECT_CONTAINS(testing::error_of<InputError>([&] { go(config, "fork"); }),
                         "another quantize.scheme");
}

TEST_F(QatRun, ends_with_an_8_bit_model_that_scores_as_its_evaluations_did) {
  const auto config = short_config("fp32");
  const RunOutput output = go(config, "run");
  ASSERT_TRUE(fs::equivalent(output.quantized, place("run") / "quantized" / kWholeFile));
  const WholeModel whole = load_model(output.quantized);
  EXPECT_EQ(whole.quantized.scheme, "static");
  EXPECT_EQ(whole.quantized.samples, 32);

  const auto images = open_dataset(config.data.train, "data.train");
  const Begun begun(config, *images);
  TinyRun last_state(config, images.get(), begun.task());
  last_state.state.load_model(weights("run"), "the checkpoint");
  last_state.state.task.module->eval();
  std::vector<int64_t> indices(30);
  std::iota(indices.begin(), indices.end(), int64_t{0});
  const Batch batch = collated(*images, indices).batch;
  const at::NoGradGuard no_grad;
  const at::Tensor trained = last_state.state.task.predict(batch).outputs;
  const at::Tensor answered = whole.task.predict(batch).outputs;
  const double range = (trained.max() - trained.min()).item<double>();
  EXPECT_LT((answered - trained).abs().max().item<double>(), 1e-3 * range);
  // The unrounded weights give other answers, because the training's forward rounds them.
  Task plain = build_task(config, ModelRegistry(), *images);
  const TensorMap last_weights = weights("run");
  for (const auto& [name, tensor] : tensors_of(*plain.module)) {
    tensor.detach().copy_(last_weights.at(name));
  }
  plain.module->eval();
  EXPECT_GT((plain.predict(batch).outputs - trained).abs().max().item<double>(), 1e-3 * range);
}

double loss_of(const NamedValues& values) {
  for (const auto& [name, value] : values) {
    if (name == "loss") return value;
  }
  return std::nan("");
}

TEST_F(QatRun, is_evaluated_from_its_checkpoint_its_export_and_its_8_bit_model) {
  const auto config = short_config("fp32");
  const RunOutput output = go(config, "run");
  const double loss = loss_of(output.summary.evaluate);
  ASSERT_TRUE(std::isfinite(loss));
  const auto evaluated = [&](const fs::path& checkpoint) {
    return loss_of(evaluate_checkpoint(config, checkpoint, test_registry(), nullptr).report.values);
  };
  EXPECT_NEAR(evaluated(last("run")), loss, 1e-6 * loss);
  EXPECT_NEAR(evaluated(place("run") / "model.safetensors"), loss, 0.2 * loss);
  const auto of_file =
      evaluate_whole_model(output.quantized, "", {}, test_registry(), nullptr).report.values;
  EXPECT_NEAR(loss_of(of_file), loss, 0.02 * loss);
}

TEST_F(QatRun, keeps_its_scales_out_of_the_exported_weights_and_of_runs_that_begin_with_them) {
  const auto config = short_config();
  const RunOutput output = go(config, "run");
  for (const auto& [name, tensor] : read_safetensors(place("run") / kWholeFile).tensors) {
    EXPECT_EQ(name.find("input_"), std::string::npos) << name;
  }
  EXPECT_TRUE(weights("run").contains("head.input_scale"));
  EXPECT_EQ(load_model(output.quantized).quantized.scheme, "static");  // of an fp64 run
  auto next = short_config();
  next.run.steps = 1;
  next.model.init_from = last("run").string();
  EXPECT_EQ(go(next, "next").summary.steps, 1);
  next.quantize = {};
  EXPECT_EQ(go(next, "plain").summary.steps, 1);
  EXPECT_FALSE(weights("plain").contains("head.input_scale"));
}

TEST_F(QatRun, wraps_nothing_without_a_scheme_and_says_what_it_wraps_with_one) {
  auto config = short_config("fp32");
  config.quantize = {};
  const Registry registry = test_registry();
  const Prepared plain = prepare(config, registry, false, "");
  EXPECT_EQ(plain.quantization, nullptr);
  for (const auto& [name, tensor] : tensors_of(*plain.task.module)) {
    EXPECT_FALSE(name.ends_with("input_scale")) << name;
  }
  config.quantize.scheme = "static";
  config.quantize.keep = {"head.*"};
  const Prepared prepared = prepare(config, registry, false, "");
  ASSERT_NE(prepared.quantization, nullptr);
  std::string told;
  for (const PlanLine& line : prepared.plan.lines) {
    if (line.key == "quantize.weights") told = line.reason;
  }
  TANREN_EXPECT_CONTAINS(told, "convolution");
  TANREN_EXPECT_CONTAINS(told, "head.weight (quantize.keep names it) stays");
  config.quantize.keep = {"*"};
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { (void)prepare(config, registry, false, ""); }),
                         "no weight of the model can become 8-bit");
}

}  // namespace
}  // namespace tanren::testing
