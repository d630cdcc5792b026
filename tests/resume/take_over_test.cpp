// What a fork loads from the state of a run in another precision. Weights keep the precision in
// which they were stored.
#include "tanren/train/take_over.h"

#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/config/read_config.h"
#include "tanren/config/write_config.h"
#include "tanren/run/run.h"
#include "tests/support/gan.h"
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

Snapshot snapshot_of(const TinyRun& run) {
  const RunState& state = run.state;
  Snapshot snapshot;
  for (const auto& [name, tensor] : state.model_tensors()) {
    // Files store 16-bit tensors widened to fp32.
    const bool is_narrow = tensor.is_floating_point() && tensor.element_size() < 4;
    snapshot.model.tensors.set(name, is_narrow ? tensor.to(at::kFloat) : tensor.clone());
  }
  const State optimizer = state.optimizer_state();
  for (const auto& [name, tensor] : optimizer.tensors) {
    snapshot.optimizer.tensors.set(name, tensor.clone());
  }
  snapshot.optimizer.values = optimizer.values;
  snapshot.run = state.run_state(run.parts.device);
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

// The 16-bit weights are rounded. Only the wider copies hold what was learnt below their last bit.
TEST(TakeOver, of_weights_with_wider_copies_takes_the_copies) {
  TinyRun source(config_with("O2 bf16"));
  source.steps(4);
  const Snapshot saved = snapshot_of(source);
  TinyRun wide(config_with("fp32"));
  take_over(wide.state, wide.parts.device, saved, everything(), {});
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
  const Snapshot saved = snapshot_of(source);
  TinyRun narrow(config_with("O2 bf16"));
  take_over(narrow.state, narrow.parts.device, saved, everything(), {});
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
  const Snapshot saved = snapshot_of(source);
  TinyRun wide(config_with("fp64"));
  take_over(wide.state, wide.parts.device, saved, everything(), {});
  const State own = wide.state.optimizer_state();
  for (const auto& [name, tensor] : saved.model.tensors) {
    EXPECT_TRUE(at::equal(wide.state.model_tensors().at(name), tensor.to(at::kDouble))) << name;
    const std::string moment = "train.loss." + name + ".exp_avg_sq";
    EXPECT_TRUE(
        at::equal(own.tensors.at(moment), saved.optimizer.tensors.at(moment).to(at::kDouble)))
        << name;
  }
}

// One moment without the other would be a state that no run can have.
TEST(TakeOver, of_a_state_that_is_not_whole_leaves_the_parameter_as_it_is) {
  TinyRun source(config_with("fp32"));
  source.steps(3);
  Snapshot saved = snapshot_of(source);
  State partial{{}, saved.optimizer.values};
  const std::string lost = "train.loss.head.bias.exp_avg_sq";
  for (const auto& [name, tensor] : saved.optimizer.tensors) {
    if (name != lost) partial.tensors.set(name, tensor);
  }
  saved.optimizer = partial;
  TinyRun fork(config_with("fp32"));
  take_over(fork.state, fork.parts.device, saved, everything(), {});
  const State own = fork.state.optimizer_state();
  EXPECT_EQ(own.tensors.at("train.loss.head.bias.step").item<double>(), 0);
  EXPECT_EQ(own.tensors.at("train.loss.head.bias.exp_avg").abs().sum().item<double>(), 0);
  EXPECT_EQ(own.tensors.at("train.loss.head.weight.step").item<double>(), 3);
}

TEST(TakeOver, of_nothing_but_the_weights_begins_all_else_anew) {
  TinyRun source(config_with("fp32"));
  source.steps(3);
  TinyRun fork(config_with("fp32"));
  take_over(fork.state, fork.parts.device, snapshot_of(source), {}, {});
  EXPECT_TRUE(at::equal(fork.weights(), source.weights()));
  EXPECT_EQ(fork.state.step(), 0);
  EXPECT_EQ(fork.state.consumed, 0);
  EXPECT_EQ(fork.state.attempt, 3);
  for (const auto& [name, tensor] : fork.state.optimizer_state().tensors) {
    EXPECT_EQ(tensor.abs().sum().item<double>(), 0) << name;
  }
}

RunConfig sgd_config(double dampening) {
  auto config = config_with("fp32");
  config.optimizer.kind = "sgd";
  config.optimizer.momentum = 0.9;
  config.optimizer.dampening = dampening;
  return config;
}

// Otherwise the first update would overwrite the buffers that were taken over.
TEST(TakeOver, of_sgds_buffers_goes_on_with_them_under_dampening) {
  TinyRun source(sgd_config(0));
  source.steps(3);
  const Snapshot saved = snapshot_of(source);
  TinyRun fork(sgd_config(0.5));
  EXPECT_TRUE(take_over(fork.state, fork.parts.device, saved, everything(), {}).empty());
  const State own = fork.state.optimizer_state();
  int64_t flags = 0;
  for (const auto& [name, value] : own.values) {
    if (!name.ends_with(".started")) continue;
    EXPECT_TRUE(std::get<bool>(value)) << name;
    ++flags;
  }
  EXPECT_EQ(flags, std::ssize(fork.state.phases.front().objectives.front().updated));
  for (const auto& [name, tensor] : own.tensors) {
    EXPECT_TRUE(at::equal(tensor, saved.optimizer.tensors.at(name))) << name;
  }
}

TEST(TakeOver, of_8_bit_state_unpacks_it_where_it_is_kept_in_fp32) {
  auto config = config_with("fp32");
  config.model.hidden = {80, 80};  // of enough elements to be packed
  const RunConfig wide = config;
  config.optimizer.state = "8bit";
  TinyRun source(config);
  source.steps(3);
  const Snapshot saved = snapshot_of(source);
  int64_t packed = 0;
  for (const auto& [name, tensor] : saved.optimizer.tensors) packed += name.ends_with("_codes");
  ASSERT_GT(packed, 0);
  const std::vector<StateSlice> none;
  const State plain = StoredState(saved.optimizer, none).joined();
  TinyRun fork(wide);
  EXPECT_TRUE(take_over(fork.state, fork.parts.device, saved, everything(), {}).empty());
  for (const auto& [name, tensor] : fork.state.optimizer_state().tensors) {
    EXPECT_TRUE(at::equal(tensor.cpu(), plain.tensors.at(name).cpu())) << name;
  }
}

// Optimizer state that cannot be loaded is named, so that no line claims it was loaded.
TEST(TakeOver, names_what_it_left_out) {
  TinyRun source(config_with("fp32"));
  source.steps(3);
  Snapshot saved = snapshot_of(source);
  State partial{{}, saved.optimizer.values};
  for (const auto& [name, tensor] : saved.optimizer.tensors) {
    if (name != "train.loss.head.bias.exp_avg_sq") partial.tensors.set(name, tensor);
  }
  saved.optimizer = partial;
  TinyRun fork(config_with("fp32"));
  EXPECT_EQ(take_over(fork.state, fork.parts.device, saved, everything(), {}),
            std::vector<std::string>{"train.loss.head.bias"});
}

TEST(TakeOver, of_a_plateaus_scale_alone_forgets_what_it_was_compared_with) {
  TinyRun source(config_with("fp32"));
  source.steps(1);
  Snapshot saved = snapshot_of(source);
  const std::string there = "objective.train.loss.schedule.";
  saved.run.values[there + "scale"] = 0.25;
  saved.run.values[there + "best"] = 0.125;
  saved.run.values[there + "num_bad"] = int64_t{2};
  saved.run.values[there + "cooldown"] = int64_t{1};
  TinyRun fork(config_with("fp32"));
  Objective& objective = fork.state.phases.front().objectives.front();
  ScheduleOptions options;
  options.kind = "reduce_on_plateau";
  options.mode = "min";
  objective.plateau = Plateau(options, 0.01);
  TakenParts parts = everything();
  parts.objectives["train.loss"].plateau = false;
  parts.objectives["train.loss"].plateau_scale = true;
  take_over(fork.state, fork.parts.device, saved, parts, {});
  const State own = objective.plateau.state();
  EXPECT_EQ(std::get<double>(own.values.at("scale")), 0.25);
  EXPECT_EQ(own.values.count("best"), 0u);
  EXPECT_EQ(std::get<int64_t>(own.values.at("num_bad")), 0);
}

// Parameters that the next update unfreezes have a place for their state, too.
TEST(TakeOver, of_the_step_that_unfreezes_takes_the_state_of_what_it_frees) {
  TinyRun source(config_with("fp32"));
  source.steps(3);
  auto config = config_with("fp32");
  config.model.freeze = {"head.*"};
  config.model.unfreeze = {{.parameters = {"head.*"}, .step = 3}};
  TinyRun fork(config);
  TakenParts parts = everything();
  parts.flags = false;
  const FreezePlan due{.unfreezes = {{3, {"head.weight", "head.bias"}}}};
  EXPECT_TRUE(take_over(fork.state, fork.parts.device, snapshot_of(source), parts, due).empty());
  const State own = fork.state.optimizer_state();
  EXPECT_EQ(own.tensors.at("train.loss.head.weight.step").item<double>(), 3);
}

// A GAN in a run folder, stopped and forked with another number of turns.
class TakeOverTurns : public ::testing::Test {
 protected:
  // The number of generator updates after a start with `sets` that stops after `steps` steps.
  int64_t generators_steps(const std::string& folder, int64_t steps,
                           std::vector<std::string> sets) const {
    auto config = gan_config();
    config.run.steps = 12;
    sets.push_back("run.stop_after=" + std::to_string(steps));
    RunInput input;
    input.config = parse_config(to_toml(config), "gan.toml", "/", sets, KnownKinds({"gan"}));
    input.folder = folder_.path() / folder;
    ModelRegistry models;
    models.add("gan", [](const ModelOptions&, const DataInfo&) { return one_forward_gan(); });
    run(input, {models, {}, test_accelerators()});
    const auto saved = read_checkpoint(*latest_checkpoint(input.folder / "checkpoints"));
    return value_of<int64_t>(saved.run, "objective.train.generator.step");
  }
  std::string from(const std::string& folder) const {
    return "run.fork_from=" + (folder_.path() / folder).string();
  }
  TemporaryFolder folder_;
};

TEST_F(TakeOverTurns, count_as_if_they_had_been_the_same_all_the_time) {
  const std::string every = "objectives.generator.every=";
  EXPECT_EQ(generators_steps("a", 7, {every + "2"}), 3);
  EXPECT_EQ(generators_steps("same", 1, {every + "2", from("a")}), 4);  // in turn at the eighth
  EXPECT_EQ(generators_steps("often", 1, {from("a")}), 7);              // 3 × 2 / 1, and one more
  EXPECT_EQ(generators_steps("seldom", 1, {every + "4", from("a")}), 2);
  const std::string plan = read_file(folder_.path() / "often/plan.txt");
  TANREN_EXPECT_CONTAINS(plan, "generator made 3 there, and is in turn every 1 here");
  EXPECT_EQ(read_file(folder_.path() / "same/plan.txt").find("fork_steps"), std::string::npos);
}

}  // namespace
}  // namespace tanren::testing
