// The levels O0 to O3 of precision in whole updates: types, numbers beside an emulation of apex in
// PyTorch, ranks, skips, checkpoints.
#include "tanren/base/testing.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/formats/safetensors.h"
#include "tanren/model/layers.h"
#include "tanren/model/supervised.h"
#include "tanren/model/token_layers.h"
#include "tanren/train/evaluate.h"
#include "tanren/train/model_dtype.h"
#include "tanren/train/on_ranks.h"
#include "tests/support/block_config.h"
#include "tests/support/loop_run.h"
#include "tests/support/rank_run.h"
#include "tests/support/token_data.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace tanren::testing {
namespace {

// A convolution, a batch norm and a linear layer, under the names of levels_fixture.py.
struct Net : Module {
  Net() : Module("Net") {
    conv = register_module(
        "conv", std::make_shared<Conv2d>(Conv2dOptions{.in = 1, .out = 4, .padding = 1}));
    norm = register_module("norm", std::make_shared<BatchNorm2d>(4));
    head = register_module("head", std::make_shared<Linear>(4 * 8 * 8, 5));
  }
  at::Tensor forward(const at::Tensor& x) const {
    return head->forward(norm->forward(conv->forward(x)).relu().flatten(1));
  }
  std::shared_ptr<Conv2d> conv;
  std::shared_ptr<BatchNorm2d> norm;
  std::shared_ptr<Linear> head;
};

// `first` holds initial tensors of the net by name, prefixed with "first.". Tensors that it lacks
// keep their random values.
Task net_task(const RunConfig& config, const DataInfo& info, const TensorMap& first) {
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  const auto net = std::make_shared<Net>();
  for (const auto& [name, tensor] : tensors_of(*net)) {
    if (const auto* given = first.find("first." + name)) at::Tensor(tensor).copy_(*given);
  }
  return supervised(
      net, [net](const at::Tensor& x) { return net->forward(x); }, config.model, info);
}

RunConfig level_config(const std::string& level, const std::string& mode = "auto") {
  auto config = tiny_config("mlp");
  config.precision.mode = mode;
  config.precision.level = level;
  config.batch.global_batch = "8";
  return config;
}

struct NetRun : TinyRun {
  explicit NetRun(const RunConfig& config, const TensorMap& first = {})
      : NetRun(config, first, open_dataset(config.data.train, "data.train")) {}
  NetRun(const RunConfig& config, const TensorMap& first, std::shared_ptr<Dataset> data)
      : TinyRun(config, data.get(), net_task(config, data->info(), first)), kept(std::move(data)) {}
  std::shared_ptr<Dataset> kept;

  at::ScalarType type_of(const std::string& name) const {
    return state.model_tensors().at(name).scalar_type();
  }
};

struct Types {
  const char* level;
  const char* mode;
  at::ScalarType weight, norm, gradient, state;
};

TEST(Levels, give_weights_norms_gradients_and_state_their_types) {
  const auto half = at::kHalf, brain = at::kBFloat16, full = at::kFloat;
  for (const Types& row : std::vector<Types>{{"O0", "auto", full, full, full, full},
                                             {"O1", "auto", full, full, full, full},
                                             {"O1", "bf16", full, full, full, full},
                                             {"O2", "auto", half, full, full, full},
                                             {"O2", "bf16", brain, full, full, full},
                                             {"O3", "bf16", brain, brain, brain, brain}}) {
    const std::string what = std::string(row.level) + " " + row.mode;
    NetRun run(level_config(row.level, row.mode));
    run.step();
    EXPECT_EQ(run.type_of("conv.weight"), row.weight) << what;
    EXPECT_EQ(run.type_of("norm.weight"), row.norm) << what;
    EXPECT_EQ(run.type_of("norm.running_var"), row.norm) << what;
    EXPECT_EQ(run.type_of("norm.num_batches_tracked"), at::kLong) << what;
    const auto& objective = run.objective();
    for (const auto& flat : objective.gradients.flat())
      EXPECT_EQ(flat.scalar_type(), row.gradient) << what;
    const auto state = objective.optimizer->state().tensors;
    EXPECT_EQ(state.at("conv.weight.exp_avg").scalar_type(), row.state) << what;
    EXPECT_EQ(state.contains("conv.weight.master_weight"), row.level == std::string("O2")) << what;
    EXPECT_FALSE(state.contains("norm.weight.master_weight")) << what;
  }
}

// A batch norm whose class has another name, and another class that has "BatchNorm" in its name.
struct OwnNorm : torch::nn::BatchNorm2dImpl {
  using torch::nn::BatchNorm2dImpl::BatchNorm2dImpl;
};
struct LinearBatchNorm : torch::nn::Module {
  LinearBatchNorm() { weight = register_parameter("weight", at::ones({2, 2})); }
  at::Tensor weight;
};

TEST(Levels, spare_batch_norms_by_what_they_are) {
  const auto net = std::make_shared<torch::nn::Module>();
  net->register_module("norm", std::make_shared<OwnNorm>(4));
  net->register_module("plain", std::make_shared<torch::nn::BatchNorm2dImpl>(
                                    torch::nn::BatchNorm2dOptions(4).affine(false)));
  net->register_module("block", std::make_shared<LinearBatchNorm>());
  const auto names = batch_norm_tensors(*net);
  EXPECT_TRUE(names.count("norm.weight") > 0 && names.count("norm.running_var") > 0);
  EXPECT_EQ(names.count("plain.running_var") + names.count("block.weight"), 0U);
}

TEST(Levels, sum_the_gradient_of_a_token_that_comes_often_in_fp32) {
  Embedding table(3, 2, 0.02, -1);
  const at::Tensor weight = table.parameters()[0];
  weight.set_data(weight.detach().to(at::kBFloat16));
  weight.set_grad_dtype(at::kFloat);
  table.forward(at::zeros({4096}, at::kLong), /*sparse_gradient=*/false).sum().backward();
  EXPECT_EQ(weight.grad()[0][0].item<float>(), 4096);
  EXPECT_EQ(weight.grad()[1][0].item<float>(), 0);
}

TEST(Levels, can_be_changed_property_by_property) {
  auto config = level_config("O2", "bf16");
  config.precision.keep_batchnorm_fp32 = false;
  NetRun run(config);
  EXPECT_EQ(run.type_of("norm.weight"), at::kBFloat16);
  EXPECT_TRUE(run.objective().optimizer->state().tensors.contains("norm.weight.master_weight"));
  config = level_config("O3", "bf16");
  config.precision.keep_batchnorm_fp32 = true;
  config.precision.loss_scale = "128";
  NetRun other(config);
  EXPECT_EQ(other.type_of("norm.weight"), at::kFloat);
  EXPECT_EQ(other.objective().gradients.flat().size(), 2U);  // of two types
  EXPECT_EQ(other.step().objectives[0].loss_scale, 128);
  config = level_config("O0");
  config.precision.cast_model_type = "bf16";
  EXPECT_EQ(NetRun(config).type_of("norm.weight"), at::kBFloat16);
}

// The largest difference of a model tensor to the expected tensor of the same name. It is relative
// where the expected value is above 1.
double error_to(const TensorMap& expected, const std::string& key, const NetRun& run) {
  double largest = 0;
  for (const auto& [name, tensor] : run.state.model_tensors()) {
    const auto* last = expected.find(key + name);
    if (last == nullptr) continue;
    const at::Tensor size = at::clamp_min(last->abs(), 1);
    const double error =
        ((tensor.detach().to(at::kFloat) - *last).abs() / size).max().item<double>();
    std::printf("%s%-20s %.1e\n", key.c_str(), name.c_str(), error);
    largest = std::isnan(error) ? INFINITY : std::max(largest, error);
  }
  return largest;
}

TEST(Levels, train_as_an_emulation_of_apex_in_pytorch) {
  const std::string fixtures = TANREN_SOURCE_DIR "/tests/fixtures/";
  const auto expected = read_safetensors(fixtures + "levels.safetensors").tensors;
  // PyTorch's own results in bf16 on a processor without bf16 products.
  const auto without_products = read_safetensors(fixtures + "levels_avx2.safetensors").tensors;
  for (const std::string level : {"O1", "O2", "O3"}) {
    for (const std::string mode : {"fp16", "bf16"}) {
      auto config = level_config(level, mode);
      config.optimizer = {.kind = "sgd", .learning_rate = 0.01, .weight_decay = 0, .momentum = 0.9};
      config.precision.initial_scale = "1048576";
      NetRun run(config, expected);
      const std::string key = level + "." + mode + ".";
      const at::Tensor losses = expected.at(key + "losses");
      for (int64_t step = 0; step < losses.size(0); ++step) {
        GlobalBatch batch;
        batch.local.fields.set("inputs", expected.at("inputs")[step]);
        batch.local.fields.set("labels", expected.at("labels")[step]);
        batch.local.ids = at::arange(8);
        batch.counts["samples"] = 8;
        const auto report = run.step(batch).objectives[0];
        const double loss = losses[step].item<double>();
        EXPECT_EQ(report.verdict.action == Action::apply, std::isfinite(loss)) << key << step;
        if (!std::isfinite(loss)) continue;
        EXPECT_NEAR(report.loss, loss, 0.01 * loss) << key << step;
      }
      double error = error_to(expected, key, run);
      if (mode == "bf16") error = std::min(error, error_to(without_products, key, run));
      EXPECT_LT(error, 2e-3) << key;
    }
  }
}

// A GPT on ranks: the loss of each update and the weights after the last, in fp32.
struct Trained {
  std::vector<double> losses;
  at::Tensor weights;
};

Trained trained(const RunConfig& config, const std::string& engine, int world_size) {
  const TokenData data(38);
  Trained result;
  const auto open_windows = engine == "threads" ? std::make_shared<std::atomic<int>>(0) : nullptr;
  on_engine(engine, world_size, [&](Communicator& comm) {
    RankRun run(config, data, comm, {}, open_windows);
    std::vector<double> losses;
    for (int i = 0; i < 6; ++i) losses.push_back(run.step().objectives[0].loss);
    run.state.settle();
    std::vector<at::Tensor> all;
    for (const auto& [name, tensor] : run.state.model_tensors()) {
      all.push_back(tensor.to(at::kFloat).flatten());
    }
    if (comm.rank() == 0) result = {losses, at::cat(all)};
  });
  return result;
}

TEST(Levels, on_ranks_train_as_one_rank_does) {
  for (const std::string words : {"O1 fp16", "O2 fp16", "O2 bf16", "O3 bf16"}) {
    auto config = ranks_config(words);
    config.optimizer = {.kind = "sgd", .learning_rate = 0.05, .weight_decay = 0, .momentum = 0.9};
    const Trained one = trained(config, "threads", 1);
    const double bound = words.ends_with("bf16") ? 8e-3 : 1e-3;  // last bits of the type
    for (const std::string engine : {"threads", "gloo"}) {
      for (const int64_t zero : {0, 1, 2}) {
        config.parallel.zero = zero;
        const Trained two = trained(config, engine, 2);
        const double apart = relative(two.weights, one.weights);
        std::printf("%s, %s, zero %d: %.1e\n", words.c_str(), engine.c_str(),
                    static_cast<int>(zero), apart);
        EXPECT_LT(apart, bound) << words << engine << zero;
        for (size_t i = 0; i < one.losses.size(); ++i) {
          EXPECT_NEAR(two.losses[i], one.losses[i], bound * one.losses[i]) << words << engine << i;
        }
      }
    }
  }
}

TEST(Levels, train_every_kind_of_model_nearly_as_fp32_does) {
  for (const std::string kind : {"mlp", "convnet", "gpt2", "bert"}) {
    const auto losses = [&](const std::string& words) {
      auto config = block_config(kind, words);
      config.optimizer.learning_rate = 1e-3;
      TinyRun run(config);
      std::vector<double> all;
      for (const auto& report : run.steps(4)) all.push_back(report.objectives[0].loss);
      return all;
    };
    const auto full = losses("O0 auto");
    for (const std::string words : {"O1 bf16", "O2 bf16", "O2 fp16", "O3 bf16"}) {
      const auto narrow = losses(words);
      for (size_t i = 0; i < full.size(); ++i) {
        EXPECT_NEAR(narrow[i], full[i], 0.03 * full[i]) << kind << " " << words << " " << i;
      }
    }
  }
}

TEST(Levels, recompute_blocks_and_split_scores_as_without) {
  for (const std::string words : {"O1 bf16", "O2 bf16", "O3 bf16"}) {
    const auto trained = [&](bool recomputes, int64_t chunk) {
      auto config = block_config("gpt2", words);
      if (recomputes) config.memory.recompute = {"*"};
      config.model.loss_chunk = chunk;
      TinyRun run(config);
      run.steps(3);
      return run.weights();
    };
    const at::Tensor plain = trained(false, 0);
    EXPECT_TRUE(at::equal(trained(true, 0), plain)) << words;
    EXPECT_LT(relative(trained(false, 16).to(at::kFloat), plain.to(at::kFloat)), 0.02) << words;
  }
}

// Found by reading the code: the other ranks got rank 0's weights but kept their own copies of
// them.
TEST(Levels, begin_with_rank_0s_weights_in_the_copies_too) {
  for (const int64_t zero : {0, 1, 2}) {
    auto config = ranks_config("O2 bf16");
    config.parallel.zero = zero;
    config.optimizer = {.kind = "sgd", .learning_rate = 1e-6, .weight_decay = 0, .momentum = 0};
    const TokenData data(38);
    std::vector<at::Tensor> before(2), after(2);
    on_ranks(2, [&](Communicator& comm) {
      const auto rank = static_cast<size_t>(comm.rank());
      auto own = config;
      own.run.seed += comm.rank();  // other weights
      const auto task = [&] { return build_task(own, ModelRegistry(), data); };
      RankRun run(config, data, comm, task, std::make_shared<std::atomic<int>>(0));
      begin_alike(run.state, run.parts);
      before[rank] = run.weights().to(at::kFloat);
      run.step();
      after[rank] = run.weights().to(at::kFloat);
    });
    EXPECT_TRUE(at::equal(before[0], before[1])) << zero;
    EXPECT_TRUE(at::equal(after[0], after[1])) << zero;
    EXPECT_LT(relative(after[0], before[0]), 1e-3) << zero;
  }
}

TEST(Levels, leave_no_trace_of_an_update_that_overflowed) {
  auto config = level_config("O2", "fp16");
  config.precision.initial_scale = "16777216";
  NetRun run(config);
  const auto values = [&] {
    std::vector<at::Tensor> all;
    for (const auto& [name, tensor] : run.state.model_tensors()) all.push_back(tensor.clone());
    for (const auto& [name, tensor] : run.objective().optimizer->state().tensors) {
      all.push_back(tensor.clone());
    }
    return all;
  };
  const auto before = values();
  const auto report = run.step().objectives[0];
  EXPECT_EQ(report.verdict.cause, Cause::overflow);
  EXPECT_EQ(run.objective().scaler.scale(), 8388608);
  const auto after = values();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i], after[i])) << i;
  while (run.step().objectives[0].verdict.action != Action::apply) {
  }
  EXPECT_FALSE(at::equal(before[0], values()[0]));
}

TEST(Levels, keep_the_dynamic_scale_below_its_ceiling) {
  auto config = level_config("O1", "fp16");
  config.precision.growth_interval = 1;
  config.precision.initial_scale = "1024";
  config.precision.max_scale = 4096;
  NetRun run(config);
  for (const auto& report : run.steps(5)) EXPECT_LE(report.objectives[0].loss_scale, 4096);
  EXPECT_EQ(run.objective().scaler.scale(), 4096);
}

// The mean squared error metric if outputs are cast to `type` before metrics see them.
double squared_error(const std::string& level, const std::string& type) {
  auto config = level_config(level, level == "O0" ? "auto" : "bf16");
  config.data.train.fields[1] = "labels: float[5] in [-1, 1]";
  config.model.loss = "mse";
  config.evaluate.metrics = {"mse"};
  config.precision.cast_model_outputs = type;
  NetRun run(config);
  const auto report = evaluate(run.state, run.parts, *run.dataset);
  for (const auto& [name, value] : report.values) {
    if (name == "mse") return value;
  }
  return -1;
}

TEST(Levels, hand_metrics_outputs_of_the_type_that_is_asked_for) {
  EXPECT_GT(squared_error("O0", ""), 0);
  EXPECT_EQ(squared_error("O0", ""), squared_error("O0", "fp32"));
  EXPECT_NE(squared_error("O0", ""), squared_error("O0", "bf16"));
  EXPECT_EQ(squared_error("O2", ""), squared_error("O2", "fp32"));
}

class LevelsOfRuns : public Loop {};

TEST_F(LevelsOfRuns, resume_bitwise_from_weights_that_files_hold_in_fp32) {
  for (const std::string words : {"O1 fp16", "O2 fp16", "O2 bf16", "O3 bf16"}) {
    auto config = looped_config(1);
    set_precision(config, words);
    const std::string whole = words + " whole", halves = words + " halves";
    go(config, whole);
    config.run.stop_after = 4;
    go(config, halves);
    config.run.stop_after.reset();
    go(config, halves);
    expect_same(whole, halves);
    const auto last = [&](const std::string& folder) {
      return read_checkpoint(*latest_checkpoint(folder_.path() / folder / "checkpoints"));
    };
    const auto one = last(whole), other = last(halves);
    for (const auto& [name, tensor] : one.model.tensors) {
      EXPECT_EQ(tensor.scalar_type(), at::kFloat) << words << name;
      EXPECT_TRUE(at::equal(tensor, other.model.tensors.at(name))) << words << name;
    }
    for (const auto& [name, tensor] : one.optimizer.tensors) {
      EXPECT_TRUE(at::equal(tensor, other.optimizer.tensors.at(name))) << words << name;
    }
  }
}

}  // namespace
}  // namespace tanren::testing
