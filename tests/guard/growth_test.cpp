// A run warns once if its model keeps tensors from step to step. A run without such a leak gets no
// warning.
#include "tests/support/tiny_run.h"

#include "tanren/base/file.h"
#include "tanren/base/log.h"
#include "tanren/base/testing.h"
#include "tanren/model/supervised.h"
#include "tanren/run/run.h"

#include <torch/nn/modules/linear.h>

#include <gtest/gtest.h>

namespace tanren::testing {
namespace {

// Keeps its outputs, like a module that collects activations for a plot.
class Keeper : public torch::nn::Module {
 public:
  Keeper(int64_t inputs, int64_t outputs, bool keeps, bool detached)
      : layer_(register_module("layer", torch::nn::Linear(inputs, outputs))),
        keeps_(keeps),
        detached_(detached) {}

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = layer_(x.flatten(1));
    if (keeps_) kept_.push_back(detached_ ? at::tanh(y.detach()).repeat({64, 64}) : at::tanh(y));
    return y;
  }

 private:
  torch::nn::Linear layer_;
  bool keeps_, detached_;
  std::vector<at::Tensor> kept_;
};

class Growth : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = set_log_sink([this](std::string_view line) { lines_.emplace_back(line); });
  }
  void TearDown() override { set_log_sink(before_); }

  RunOutput go(bool keeps, bool detached, int64_t growth_steps) {
    ModelRegistry models;
    models.add("keeper", [&](const ModelOptions& options, const DataInfo& info) {
      auto module = std::make_shared<Keeper>(64, num_outputs(options, info), keeps, detached);
      return supervised(module, options, info);
    });
    RunInput input;
    input.config = tiny_config("keeper");
    input.config.precision.mode = "fp32";
    input.config.guard.growth_steps = growth_steps;
    input.config.memory.limit = "8GiB";  // counts bytes, under a sanitizer too
    input.folder = folder_.path() / "run";
    return run(input, models);
  }

  TemporaryFolder folder_;
  std::vector<std::string> lines_;
  LogSink before_;
};

TEST_F(Growth, a_model_that_keeps_its_outputs_is_warned_of_once_and_the_summary_has_it) {
  const auto output = go(/*keeps=*/true, /*detached=*/false, 20);
  ASSERT_EQ(lines_.size(), 1u);
  TANREN_EXPECT_CONTAINS(lines_[0], "[guard] after 30 steps: ");
  TANREN_EXPECT_CONTAINS(lines_[0], "TanhBackward0 of aten::tanh");
  EXPECT_EQ(output.summary.growth, lines_[0]);
  TANREN_EXPECT_CONTAINS(read_file(folder_.path() / "run/summary.json"), "TanhBackward0");
}

TEST_F(Growth, detached_tensors_that_pile_up_are_told_by_their_bytes) {
  const auto output = go(/*keeps=*/true, /*detached=*/true, 20);
  ASSERT_EQ(lines_.size(), 1u);
  TANREN_EXPECT_CONTAINS(lines_[0], "live memory grew by ");
  TANREN_EXPECT_CONTAINS(lines_[0], "aten::");
}

TEST_F(Growth, a_sound_run_is_left_alone) {
  EXPECT_EQ(go(/*keeps=*/false, /*detached=*/false, 20).summary.growth, "");
  EXPECT_TRUE(lines_.empty());
}

TEST_F(Growth, zero_turns_it_off) {
  EXPECT_EQ(go(/*keeps=*/true, /*detached=*/false, 0).summary.growth, "");
}

}  // namespace
}  // namespace tanren::testing
