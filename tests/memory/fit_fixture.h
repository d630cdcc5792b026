// Plans fitted to a limit, for tests: a small GPT-2, and the same as a model that cannot run dry.
#pragma once

#include "tests/support/tiny_run.h"

#include "tanren/dry/dry_scope.h"
#include "tanren/forecast/fit_memory.h"
#include "tanren/memory/cpu_allocator.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

namespace tanren::testing {

class FitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = tiny_config("gpt2");
    config_.precision.mode = "fp32";
    config_.model.num_layers = 4;
    config_.model.hidden_size = 64;
    config_.model.num_heads = 2;
    config_.model.vocab_size = 500;
    config_.model.context_length = 64;
    config_.model.dropout = 0.1;
    config_.data.train.fields = {"inputs: int[64] in [0, 49]", "labels: int[64] in [0, 49]"};
    config_.batch.global_batch = "16";
    config_.memory.allocator = "cached";
    install_cpu_allocator();
    dataset_ = open_dataset(config_.data.train, "data.train");
  }
  void TearDown() override {
    set_cpu_memory_limit(0);
    uninstall_cpu_allocator();
  }

  FitInput input(const RunConfig& config) const {
    ModelProfile profile;
    profile_parameters(*build_task(config, ModelRegistry(), *dataset_).module, profile);
    profile.train_samples = dataset_->size();
    profile.metrics = {"*"};
    Machine machine;
    machine.cores = cores_;
    machine.memory_bytes = int64_t{16} << 30;
    return {
        .config = config,
        .plan = [machine, profile](const RunConfig& c) { return make_plan(c, machine, profile); },
        .make_task = [this](const RunConfig& c) { return make(c); },
        .dataset = dataset_.get()};
  }
  virtual Task make(const RunConfig& config) const {
    return build_task(config, ModelRegistry(), *dataset_);
  }
  Fitted fit(const RunConfig& config) const {
    const FitInput given = input(config);
    return fit_memory(given);
  }
  Fitted fit_in(int64_t bytes, RunConfig config) const {
    config.memory.limit = std::to_string(bytes);
    config.asked.insert("memory.limit");
    return fit(config);
  }
  // The number of allocation failures that 3 steps of the fitted plan recover from, under its
  // limit.
  int64_t recoveries(const Fitted& fitted) const {
    TinyRun run(fitted.config, dataset_.get(), std::nullopt);
    set_cpu_memory_limit(fitted.plan.memory.limit_bytes + standing_,
                         fitted.plan.memory.reserve_bytes);
    run.steps(3);
    return run.parts.recovery->num_failures();
  }
  static std::string line(const Plan& plan, const std::string& key) {
    for (const auto& line : plan.lines) {
      if (line.key == key) return line.value + "|" + line.reason;
    }
    return "";
  }

  RunConfig config_;
  int64_t cores_ = 1;
  std::unique_ptr<Dataset> dataset_;
  int64_t standing_ = 1 << 20;  // for the test program's other tensors
};

// Its forward reads a value of the weights, so that it cannot run dry.
class UntraceableTest : public FitTest {
 protected:
  Task make(const RunConfig& config) const override {
    Task task = FitTest::make(config);
    const at::Tensor weight = task.module->parameters().front();
    task.phases.front().forward = [this, weight,
                                   inner = task.phases.front().forward](const Batch& batch) {
      EXPECT_LT(weight.detach().flatten()[0].item<double>(), 1e9);
      EXPECT_FALSE(is_dry(batch["inputs"])) << "nothing has a value there";
      ++num_forwards_;
      return inner(batch);
    };
    return task;
  }
  // The peak of a dry run of the same model without that read.
  double dry_peak(const Plan& plan) const {
    const StepPredictor predictor([this] { return FitTest::make(config_); }, *dataset_);
    const MemoryPrediction prediction = predictor.step(plan);
    EXPECT_TRUE(prediction.is_dry);
    return static_cast<double>(prediction.peak_bytes);
  }

  mutable int64_t num_forwards_ = 0;
};

}  // namespace tanren::testing
