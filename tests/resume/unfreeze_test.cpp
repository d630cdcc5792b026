// Freezing and unfreezing within a run: frozen parameters do not change by a bit, unfrozen ones
// start with fresh optimizer state, and stop + resume ≡ no stop before, at and after an unfreeze.
#include "tests/support/tiny_run.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/run/run.h"

#include <gtest/gtest.h>

#include <atomic>
#include <regex>

namespace tanren::testing {
namespace {

// The stages unfreeze at step 3 of 9, the stem at step 6.
RunConfig unfreezing_config() {
  auto config = tiny_config("convnet");
  config.run.steps = 9;
  config.model.dropout = 0.3;
  config.model.norm = "batch";
  config.model.freeze = {"stem.*", "stages.*"};
  config.model.unfreeze = {{{"stages.*"}, 3}, {{"*"}, 6}};
  return config;
}

class Unfreeze : public ::testing::Test {
 protected:
  RunOutput go(const RunConfig& config, const std::string& folder, std::vector<Sink*> sinks = {},
               const std::atomic<bool>* stop = nullptr) {
    RunInput input;
    input.config = config;
    input.folder = folder_.path() / folder;
    input.sinks = std::move(sinks);
    input.stop = stop;
    return run(input, test_registry());
  }
  Snapshot last(const std::string& folder) {
    return read_checkpoint(*latest_checkpoint(folder_.path() / folder / "checkpoints"));
  }
  std::string log(const std::string& folder) {
    static const std::regex timing(R"(,"timing":\{[^}]*\})");
    return std::regex_replace(read_file(folder_.path() / folder / "log.jsonl"), timing, "");
  }

  void expect_equal(const std::string& a, const std::string& b) {
    EXPECT_EQ(log(a), log(b));
    const Snapshot one = last(a), other = last(b);
    const auto same = [](const TensorMap& left, const TensorMap& right) {
      ASSERT_EQ(left.size(), right.size());
      for (const auto& [name, tensor] : left) {
        EXPECT_TRUE(at::equal(tensor, right.at(name))) << name;
      }
    };
    same(one.model.tensors, other.model.tensors);
    same(one.optimizer.tensors, other.optimizer.tensors);
    same(one.average.tensors, other.average.tensors);
    EXPECT_EQ(one.optimizer.values, other.optimizer.values);
    EXPECT_EQ(one.run.values, other.run.values);
  }

  TemporaryFolder folder_;
};

TEST_F(Unfreeze, refuses_another_step_of_the_unfreeze_in_the_same_folder) {
  auto config = unfreezing_config();
  config.run.stop_after = 2;
  go(config, "run");
  config.model.unfreeze[0].step = 4;
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { go(config, "run"); }), "model.unfreeze");
}

TEST_F(Unfreeze, resumed_before_at_and_after_each_unfreeze_is_bitwise_the_undisturbed_run) {
  auto config = unfreezing_config();
  config.precision.mode = "fp32";
  config.batch.microbatch = 7;
  config.average.kind = "ema";
  config.clip.norm = 1;
  config.schedule.kind = "cosine";
  config.optimizer.layer_decay = 0.7;
  config.optimizer.groups = {{{"stem.*"}, 0.5, 0.1}, {{"head.bias"}, 2.0, {}}};
  config.data.eval = config.data.train;
  config.evaluate.every = 2;
  config.checkpoint.every = 4;
  int variant = 0;
  for (const char* kind : {"adamw", "sgd", "muon", "nadam"}) {
    SCOPED_TRACE(kind);
    config.optimizer.kind = kind;
    config.optimizer.momentum.reset();
    config.optimizer.dampening = 0;
    if (config.optimizer.kind == "sgd") {
      config.optimizer.momentum = 0.9;
      config.optimizer.dampening = 0.1;
    }
    const std::string name = "v" + std::to_string(variant++);
    go(config, name);
    for (const int64_t step : {2, 3, 4, 6, 8}) {
      if (variant > 1 && step != 3) continue;  // later kinds: only at the unfreeze
      SCOPED_TRACE(step);
      const std::string stopped = name + "-" + std::to_string(step);
      auto first = config;
      first.run.stop_after = step;
      EXPECT_EQ(go(first, stopped).loop.ending, Ending::stopped);
      EXPECT_EQ(go(config, stopped).loop.ending, Ending::finished);
      expect_equal(name, stopped);
    }
  }
}

// Requests a stop when attempt `attempt` is reported.
class StopAtStep final : public Sink {
 public:
  StopAtStep(int64_t attempt, std::atomic<bool>& stop) : attempt_(attempt), stop_(stop) {}
  void step(const StepReport& report) override {
    if (report.attempt == attempt_) stop_ = true;
  }

 private:
  int64_t attempt_;
  std::atomic<bool>& stop_;
};

TEST_F(Unfreeze, an_fp16_run_whose_update_at_the_unfreeze_is_skipped_resumes_bitwise) {
  auto config = unfreezing_config();
  config.precision.mode = "fp16";
  config.precision.initial_scale = "4294967296";
  config.precision.growth_interval = 2;  // gives overflows before and after the unfreezes
  const auto whole = go(config, "whole");
  EXPECT_GT(whole.summary.skipped_steps, 0);
  for (const int64_t attempt : {3, 8, 12}) {
    const std::string name = "interrupted-" + std::to_string(attempt);
    std::atomic<bool> stop{false};
    StopAtStep sink(attempt, stop);
    go(config, name, {&sink}, &stop);
    go(config, name);
    expect_equal("whole", name);
  }
}

TEST_F(Unfreeze, what_is_frozen_keeps_its_bytes_statistics_included_until_its_step) {
  TinyRun run(unfreezing_config());
  const auto bytes = [&](const std::string& start) {
    TensorMap found;
    for (const auto& [name, tensor] : run.state.model_tensors()) {
      if (name.rfind(start, 0) == 0) found.set(name, tensor.clone());
    }
    return found;
  };
  const auto differ = [](const TensorMap& a, const TensorMap& b) {
    int64_t count = 0;
    for (const auto& [name, tensor] : a) count += at::equal(tensor, b.at(name)) ? 0 : 1;
    return count;
  };
  const auto stem = bytes("stem"), stages = bytes("stages");
  run.steps(3);
  EXPECT_EQ(differ(bytes("stages"), stages), 0);
  run.steps(3);
  EXPECT_EQ(differ(bytes("stages"), stages), static_cast<int64_t>(stages.size()));
  EXPECT_EQ(differ(bytes("stem"), stem), 0);
  run.step();
  EXPECT_EQ(differ(bytes("stem"), stem), static_cast<int64_t>(stem.size()));
}

TEST_F(Unfreeze, adam_counts_from_the_unfreeze_so_its_first_update_has_the_full_rate) {
  auto config = unfreezing_config();
  config.model.norm = "none";
  config.optimizer.weight_decay = 0;
  TinyRun run(config);
  run.steps(3);
  const at::Tensor weight = run.state.task.module->named_parameters()["stages.0.conv1.weight"];
  const at::Tensor before = weight.detach().clone();
  run.step();
  const at::Tensor change = (weight.detach() - before).abs();
  const at::Tensor counts = change.gt(0);
  EXPECT_GT(counts.sum().item<int64_t>(), weight.numel() / 2);
  // With bias correction the first update of an element equals the rate for any gradient.
  EXPECT_NEAR(change.masked_select(counts).median().item<double>(), 0.01, 1e-5);
  const State state = run.objective().optimizer->state();
  EXPECT_EQ(state.tensors.at("stages.0.conv1.weight.step").item<float>(), 1);
  EXPECT_EQ(state.tensors.at("head.weight.step").item<float>(), 4);
  EXPECT_FALSE(state.tensors.contains("stem.conv.weight.step"));
}

TEST_F(Unfreeze, the_split_into_microbatches_does_not_matter_across_a_unfreeze) {
  auto config = unfreezing_config();
  config.model.norm = "group";
  TinyRun whole(config);
  config.batch.microbatch = 7;
  TinyRun split(config);
  for (int i = 0; i < 9; ++i) {
    whole.step();
    split.step();
    EXPECT_LT(relative(split.weights(), whole.weights()), 1e-13) << i;
  }
  EXPECT_EQ(split.gradients().numel(), split.weights().numel());
}

TEST_F(Unfreeze, rates_of_groups_and_layers_are_those_of_the_run_that_freezes_nothing) {
  auto config = unfreezing_config();
  config.optimizer.kind = "sgd";
  config.optimizer.weight_decay = 0;
  config.optimizer.layer_decay = 0.5;
  config.optimizer.groups = {{{"stages.0.*"}, 0.1, {}}};
  config.model.dropout = 0;
  config.model.norm = "none";
  TinyRun frozen(config);
  config.model.freeze.clear();
  config.model.unfreeze.clear();
  TinyRun plain(config);
  const auto update_of = [](TinyRun& run, const char* name) {
    const at::Tensor parameter = run.state.task.module->named_parameters()[name];
    const at::Tensor before = parameter.detach().clone();
    run.step();
    return at::Tensor(parameter.detach() - before);
  };
  EXPECT_LT(relative(update_of(frozen, "head.weight"), update_of(plain, "head.weight")), 1e-12);
  frozen.steps(2);
  plain.steps(2);
  plain.state.load_model(frozen.state.model_tensors(), "the other run");
  EXPECT_LT(relative(update_of(frozen, "stages.0.conv1.weight"),
                     update_of(plain, "stages.0.conv1.weight")),
            1e-12);
}

}  // namespace
}  // namespace tanren::testing
