// What a fork loads of another precision's state: weights are taken as exactly as they were kept.
#include "tanren/train/take_over.h"

#include "tests/support/tiny_run.h"

#include <gtest/gtest.h>

namespace tanren::testing {
namespace {

RunConfig config_with(const std::string& precision) {
  auto config = tiny_config("mlp");
  set_precision(config, precision);
  config.model.dropout = 0.2;
  return config;
}

Snapshot snapshot_of(const RunState& state) {
  Snapshot snapshot;
  for (const auto& [name, tensor] : state.model_tensors()) {
    // As files have them: 16 bits widened.
    const bool is_narrow = tensor.is_floating_point() && tensor.element_size() < 4;
    snapshot.model.tensors.set(name, is_narrow ? tensor.to(at::kFloat) : tensor.clone());
  }
  const State optimizer = state.optimizer_state();
  for (const auto& [name, tensor] : optimizer.tensors) {
    snapshot.optimizer.tensors.set(name, tensor.clone());
  }
  snapshot.optimizer.values = optimizer.values;
  snapshot.run = state.run_state();
  return snapshot;
}

TakenParts everything() {
  TakenParts parts{.flags = true, .position = true, .random = true, .evaluations = true};
  parts.objectives["train.loss"] = {.optimizer = true, .average = true, .plateau = true};
  return parts;
}

at::Tensor copy_of(const State& optimizer, const std::string& name) {
  return optimizer.tensors.at("train.loss." + name + ".master_weight");
}

// The weights of 16 bits are rounded; what was learnt below their last bit lies in the copies.
TEST(TakeOver, of_weights_with_wider_copies_takes_the_copies) {
  TinyRun source(config_with("O2 bf16"));
  source.steps(4);
  const Snapshot saved = snapshot_of(source.state);
  TinyRun wide(config_with("fp32"));
  take_over(wide.state, saved, everything(), {});
  int64_t finer = 0;
  for (const auto& [name, tensor] : wide.state.model_tensors()) {
    EXPECT_TRUE(at::equal(tensor.cpu(), copy_of(saved.optimizer, name).cpu())) << name;
    finer += at::ne(tensor.cpu(), saved.model.tensors.at(name).cpu()).sum().item<int64_t>();
  }
  EXPECT_GT(finer, 0);
  EXPECT_EQ(wide.state.step(), 4);
  EXPECT_EQ(wide.state.consumed, source.state.consumed);
}

TEST(TakeOver, of_wide_weights_keeps_their_low_bits_in_the_copies) {
  TinyRun source(config_with("fp32"));
  source.steps(4);
  const Snapshot saved = snapshot_of(source.state);
  TinyRun narrow(config_with("O2 bf16"));
  take_over(narrow.state, saved, everything(), {});
  const State own = narrow.state.optimizer_state();
  for (const auto& [name, tensor] : narrow.state.model_tensors()) {
    const at::Tensor before = saved.model.tensors.at(name);
    EXPECT_EQ(tensor.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::equal(copy_of(own, name).cpu(), before.cpu())) << name;
    EXPECT_TRUE(at::equal(tensor.cpu(), before.to(at::kBFloat16).cpu())) << name;
    const std::string moment = "train.loss." + name + ".exp_avg";
    EXPECT_TRUE(at::equal(own.tensors.at(moment), saved.optimizer.tensors.at(moment))) << name;
  }
}

TEST(TakeOver, to_fp64_converts_weights_and_moments_without_loss) {
  TinyRun source(config_with("fp32"));
  source.steps(3);
  const Snapshot saved = snapshot_of(source.state);
  TinyRun wide(config_with("fp64"));
  take_over(wide.state, saved, everything(), {});
  const State own = wide.state.optimizer_state();
  for (const auto& [name, tensor] : saved.model.tensors) {
    EXPECT_TRUE(at::equal(wide.state.model_tensors().at(name), tensor.to(at::kDouble))) << name;
    const std::string moment = "train.loss." + name + ".exp_avg_sq";
    EXPECT_TRUE(
        at::equal(own.tensors.at(moment), saved.optimizer.tensors.at(moment).to(at::kDouble)))
        << name;
  }
}

// One moment without the other would be a state that no run ever had.
TEST(TakeOver, of_a_state_that_is_not_whole_leaves_the_parameter_as_it_is) {
  TinyRun source(config_with("fp32"));
  source.steps(3);
  Snapshot saved = snapshot_of(source.state);
  State partial{{}, saved.optimizer.values};
  const std::string lost = "train.loss.head.bias.exp_avg_sq";
  for (const auto& [name, tensor] : saved.optimizer.tensors) {
    if (name != lost) partial.tensors.set(name, tensor);
  }
  saved.optimizer = partial;
  TinyRun fork(config_with("fp32"));
  take_over(fork.state, saved, everything(), {});
  const State own = fork.state.optimizer_state();
  EXPECT_EQ(own.tensors.at("train.loss.head.bias.step").item<double>(), 0);
  EXPECT_EQ(own.tensors.at("train.loss.head.bias.exp_avg").abs().sum().item<double>(), 0);
  EXPECT_EQ(own.tensors.at("train.loss.head.weight.step").item<double>(), 3);
}

TEST(TakeOver, of_nothing_but_the_weights_begins_all_else_anew) {
  TinyRun source(config_with("fp32"));
  source.steps(3);
  TinyRun fork(config_with("fp32"));
  take_over(fork.state, snapshot_of(source.state), {}, {});
  EXPECT_TRUE(at::equal(fork.weights(), source.weights()));
  EXPECT_EQ(fork.state.step(), 0);
  EXPECT_EQ(fork.state.consumed, 0);
  EXPECT_EQ(fork.state.attempt, 3);
  for (const auto& [name, tensor] : fork.state.optimizer_state().tensors) {
    EXPECT_EQ(tensor.abs().sum().item<double>(), 0) << name;
  }
}

}  // namespace
}  // namespace tanren::testing
