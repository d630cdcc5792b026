// Several microbatches in flight, as in a stage of a pipeline: other forwards and backwards run
// between a microbatch's forward and its backward, and no number changes.
#include "tests/support/block_config.h"

#include "tanren/blocks/block_trail.h"
#include "tanren/precision/autocast_scope.h"
#include "tanren/train/accumulate.h"
#include "tanren/train/passes.h"
#include "tanren/train/prepared.h"

#include <gtest/gtest.h>

#include <deque>

namespace tanren::testing {
namespace {

// Eight samples in microbatches of three, three and two.
RunConfig in_thirds(const std::string& kind, const std::string& mode) {
  auto config = block_config(kind, mode);
  config.batch.microbatch = 3;
  return config;
}

Phase& begun_phase(TinyRun& run) {
  Phase& phase = run.state.phases.front();
  phase.begin_turn(run.state.attempt);
  return phase;
}

// The window's gradients as a step accumulates them: each backward follows its forward.
at::Tensor one_by_one(TinyRun& run) {
  LossMeter losses;
  accumulate(begun_phase(run), run.state, run.parts, run.loader->next(), losses);
  EXPECT_EQ(losses.microsteps(), 3);
  return run.gradients();
}

// The same with up to `most` microbatches in flight.
at::Tensor in_flight(TinyRun& run, size_t most) {
  Phase& phase = begun_phase(run);
  Gradients& gradients = run.objective().gradients;
  gradients.zero();
  const GlobalBatch batch = run.loader->next();
  const Batch whole = prepared(batch.local, run.state.task, run.parts);
  const WindowScope window(run.parts.plan.precision, run.parts.ranks->open_windows());
  const PassContext context{phase, run.state, run.parts};
  const Pending everything(phase.objectives.size());
  std::deque<ForwardPass> passes;
  const auto finish_first = [&] {
    backward_pass(context, passes.front(), batch, everything, /*is_last=*/false);
    passes.pop_front();
  };
  for (int64_t begin = 0; begin < whole.size(); begin += 3) {
    if (passes.size() == most) finish_first();
    gradients.begin_microstep();
    passes.push_back(forward_pass(context, whole.slice(begin, std::min(begin + 3, whole.size()))));
    EXPECT_FALSE(passes.back().blocks.empty());
    EXPECT_TRUE(block_trail().passages.empty());
  }
  while (!passes.empty()) finish_first();
  return run.gradients();
}

class PassesOf : public ::testing::TestWithParam<const char*> {};

TEST_P(PassesOf, in_flight_together_give_bitwise_the_gradients_of_one_after_the_other) {
  for (const char* mode : {"fp32", "bf16"}) {
    for (const bool again : {false, true}) {
      auto config = in_thirds(GetParam(), mode);
      config.run.deterministic = test_device() != "cpu";
      if (again) config.memory.recompute = {"*"};
      TinyRun plain(config);
      const at::Tensor expected = one_by_one(plain);
      EXPECT_GT(expected.abs().max().item<double>(), 0);
      for (const size_t most : {size_t{2}, size_t{3}}) {
        TinyRun run(config);
        EXPECT_TRUE(at::equal(in_flight(run, most), expected)) << mode << ", " << most;
        const TensorMap tensors = plain.state.model_tensors();
        for (const auto& [name, tensor] : run.state.model_tensors()) {
          EXPECT_TRUE(at::equal(tensor, tensors.at(name))) << name;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PassesOf,
                         ::testing::Values("mlp", "convnet", "gpt2", "bert", "lstm"));

TEST(Seed, of_a_term_is_its_weight_times_the_scale_over_the_global_count) {
  TinyRun run(in_thirds("mlp", "fp16"));
  Objective& objective = run.objective();
  GlobalBatch batch = run.loader->next();
  const double scale = objective.scaler.scale();
  ASSERT_GT(scale, 1);
  batch.counts["samples"] = 24;  // of three ranks
  EXPECT_EQ(seed_of(objective, "cross_entropy", "samples", batch), scale / 24);
  objective.spec.terms = {{"cross_entropy", 0.25}, {"told", 0}};
  EXPECT_EQ(seed_of(objective, "cross_entropy", "samples", batch), 0.25 * scale / 24);
  EXPECT_EQ(seed_of(objective, "told", "samples", batch), std::nullopt);
  EXPECT_EQ(seed_of(objective, "another", "samples", batch), std::nullopt);
  batch.counts["samples"] = 0;
  EXPECT_EQ(seed_of(objective, "cross_entropy", "samples", batch), std::nullopt);
}

}  // namespace
}  // namespace tanren::testing
