// The bytes per parameter for each optimizer and precision, counted by the allocator. They are
// printed beside the rule of thumb of the guide "Model training anatomy".
#include "tests/support/tiny_run.h"

#include "tanren/base/eval_mode_scope.h"
#include "tanren/base/random.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/plan/passes.h"
#include "tanren/precision/autocast_scope.h"

#include <ATen/core/grad_mode.h>

#include <gtest/gtest.h>

#include <cstdio>

namespace tanren::testing {
namespace {

struct Row {
  const char* optimizer;
  void (*choose)(OptimizerOptions&);
  double state;  // bytes per parameter of weights in fp32
  double guide;  // 0: not in the guide
};

const std::vector<Row> kRows = {
    {"adamw", [](OptimizerOptions&) {}, 8, 8},
    {"adamw, bf16 state", [](OptimizerOptions& o) { o.state = "bf16"; }, 4, 0},
    {"adamw, 8-bit state", [](OptimizerOptions& o) { o.state = "8bit"; }, 2, 2},
    {"adamw, amsgrad", [](OptimizerOptions& o) { o.amsgrad = true; }, 12, 0},
    {"adam", [](OptimizerOptions& o) { o.kind = "adam"; }, 8, 8},
    {"nadam", [](OptimizerOptions& o) { o.kind = "nadam"; }, 8, 0},
    {"radam", [](OptimizerOptions& o) { o.kind = "radam"; }, 8, 0},
    {"sgd", [](OptimizerOptions& o) { o.kind = "sgd"; }, 0, 0},
    {"sgd, momentum",
     [](OptimizerOptions& o) {
       o.kind = "sgd";
       o.momentum = 0.9;
     },
     4, 4},
    {"lion", [](OptimizerOptions& o) { o.kind = "lion"; }, 4, 0},
    {"adagrad", [](OptimizerOptions& o) { o.kind = "adagrad"; }, 4, 0},
    {"rmsprop", [](OptimizerOptions& o) { o.kind = "rmsprop"; }, 4, 0},
    {"rmsprop, centered, momentum",
     [](OptimizerOptions& o) {
       o.kind = "rmsprop";
       o.centered = true;
       o.momentum = 0.9;
     },
     12, 0},
    {"adafactor", [](OptimizerOptions& o) { o.kind = "adafactor"; }, 0, 0},
    {"muon",
     [](OptimizerOptions& o) {
       o.kind = "muon";
       o.newton_schulz_steps = 1;  // takes as much memory as five
     },
     4, 0},
};

struct PrecisionRow {
  const char* mode;
  double weights, gradients;
  double casts;  // autocast's copies, which live within a window
  double state_scale;
  double copies = 0;  // of the weights, in the state
};
const std::vector<PrecisionRow> kPrecisions = {
    {"fp32", 4, 4, 0, 1},       {"bf16", 4, 4, 2, 1},     {"fp16", 4, 4, 2, 1},
    {"fp64", 8, 8, 0, 2},       {"O0 auto", 4, 4, 0, 1},  {"O1 fp16", 4, 4, 2, 1},
    {"O2 bf16", 2, 4, 0, 1, 4}, {"O3 bf16", 2, 2, 0, 0.5}};

RunConfig wide_config(const Row& row, const char* mode) {
  auto config = tiny_config("mlp");
  config.model.hidden = {1024};
  config.data.train.fields = {"inputs: float[1024] in [-1, 1]", "labels: int[] in [0, 4]"};
  config.data.train.samples = 2;
  config.batch.global_batch = "2";
  set_precision(config, mode);
  config.memory.limit = "8GiB";  // installs our allocator, under a sanitizer too
  row.choose(config.optimizer);
  return config;
}

int64_t bytes_of(MemoryKind kind) { return cpu_memory_by_kind()[static_cast<size_t>(kind)]; }

// Bytes of the cast weights that a forward keeps until the end of its window.
int64_t cast_bytes(TinyRun& run, bool training) {
  const at::AutoGradMode gradients(training);
  const Batch batch = run.dataset->collate({0}).batch;
  const PrecisionPlan& precision = run.parts.plan.precision;
  EXPECT_EQ(bytes_of(MemoryKind::casts), 0);
  const RandomScope random(1, 1, batch.ids);
  const WindowScope window(precision);
  const AutocastScope autocast(at::kCPU, precision);
  run.state.task.phases.front().forward(batch);
  return bytes_of(MemoryKind::casts);
}

class BytesPerParameter : public ::testing::Test {
 protected:
  void SetUp() override { install_cpu_allocator(); }
  void TearDown() override {
    set_cpu_memory_limit(0);
    uninstall_cpu_allocator();
  }
};

TEST_F(BytesPerParameter, are_as_the_table_says_for_every_optimizer_and_precision) {
  std::printf("%-28s %-5s %8s %10s %7s %7s %8s %s\n", "optimizer", "mode", "weights", "gradients",
              "state", "casts", "in all", "guide");
  for (const Row& row : kRows) {
    for (const PrecisionRow& precision : kPrecisions) {
      const std::string what = std::string(row.optimizer) + " " + precision.mode;
      const bool fixed_state = row.state == 2 || std::string(row.optimizer) == "adamw, bf16 state";
      if (fixed_state && precision.state_scale != 1) continue;  // refused
      TinyRun run(wide_config(row, precision.mode));
      run.step();
      const auto count = static_cast<double>(run.weights().numel());
      const auto per = [&](int64_t bytes) { return static_cast<double>(bytes) / count; };
      const double weights = per(bytes_of(MemoryKind::weights)),
                   gradients = per(bytes_of(MemoryKind::gradients)),
                   state = per(bytes_of(MemoryKind::optimizer)), casts = per(cast_bytes(run, true));
      std::printf("%-28s %-5s %8.2f %10.2f %7.2f %7.2f %8.2f %s\n", row.optimizer, precision.mode,
                  weights, gradients, state, casts, weights + gradients + state + casts,
                  row.guide > 0 ? std::to_string(static_cast<int>(row.guide)).c_str() : "-");
      constexpr double kSlack = 0.03;  // biases, scalars and 64-byte rounding
      EXPECT_NEAR(weights, precision.weights, kSlack) << what;
      EXPECT_NEAR(gradients, precision.gradients, kSlack) << what;
      EXPECT_NEAR(state, row.state * precision.state_scale + precision.copies, 0.1) << what;
      EXPECT_NEAR(casts, precision.casts, kSlack) << what;
    }
  }
}

// Issue 21: convolution kernels in channels-last were planned as packed, but were not packed.
TEST_F(BytesPerParameter, of_packed_state_are_those_of_the_plan_for_every_kind_and_layout) {
  struct Kind {
    const char* name;
    std::vector<const char*> layouts;
  };
  for (const auto& [kind, layouts] :
       {Kind{"mlp", {"auto"}}, Kind{"convnet", {"contiguous", "channels_last"}},
        Kind{"resnet", {"contiguous", "channels_last"}}, Kind{"gpt2", {"auto"}},
        Kind{"bert", {"auto"}}, Kind{"lstm", {"auto"}}}) {
    for (const char* layout : layouts) {
      for (const char* state : {"8bit", "bf16"}) {
        auto config = tiny_config(kind);
        config.precision.mode = "fp32";
        config.optimizer.state = state;
        config.model.memory_format = layout;
        const std::string name = kind;
        const bool is_vision = name == "convnet" || name == "resnet";
        const bool reads_tokens = name == "gpt2" || name == "bert" || name == "lstm";
        if (name == "mlp") config.model.hidden = {128, 128};
        if (name == "convnet") config.model.channels = {32, 64};
        if (is_vision) {
          config.data.train.fields = {"inputs: float[3,8,8] in [-1, 1]", "labels: int[] in [0, 4]"};
        }
        if (reads_tokens) {
          config.model.hidden_size = 64;
          config.model.num_layers = 1;
          if (name != "lstm") config.model.num_heads = 2;
          config.data.train.fields = {"inputs: int[7] in [0, 99]", name == "gpt2"
                                                                       ? "labels: int[7] in [0, 99]"
                                                                       : "labels: int[] in [0, 4]"};
        }
        const TinyRun run(config);
        const Machine machine;
        ModelProfile profile;
        profile_parameters(*run.state.task.module, profile);
        const int64_t planned = optimizer_bytes({config, machine, profile}, run.parts.plan);
        int64_t bytes = 0, elements = 0;
        for (const auto& [key, tensor] : run.state.optimizer_state().tensors) {
          bytes += static_cast<int64_t>(tensor.nbytes());
        }
        for (const auto& parameter : run.state.task.module->parameters()) {
          elements += parameter.numel();
        }
        const double per = static_cast<double>(bytes) / static_cast<double>(elements);
        std::printf("%-8s %-14s %-5s %6.2f bytes a parameter\n", kind, layout, state, per);
        EXPECT_EQ(bytes, planned) << kind << " " << layout << " " << state;
        if (name == "resnet") {
          EXPECT_LT(per, *state == '8' ? 2.1 : 4.1);
        }
      }
    }
  }
}

// The guide counts 6 for inference in mixed precision: weights, and a 16-bit copy of them.
TEST_F(BytesPerParameter, of_inference_are_the_weights_and_their_cast) {
  auto config = wide_config(kRows.front(), "bf16");
  config.optimizer.kind = "sgd";
  TinyRun run(config);
  const auto count = static_cast<double>(run.weights().numel());
  const EvalModeScope eval_mode(*run.state.task.module);
  EXPECT_NEAR(static_cast<double>(bytes_of(MemoryKind::weights)) / count, 4, 0.03);
  EXPECT_NEAR(static_cast<double>(cast_bytes(run, false)) / count, 2, 0.03);
}

}  // namespace
}  // namespace tanren::testing
