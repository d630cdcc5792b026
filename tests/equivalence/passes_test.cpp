// Several microbatches in flight, as in a stage of a pipeline: other forwards and backwards run
// between a microbatch's forward and its backward, and no number changes.
#include "tests/support/block_config.h"
#include "tests/support/gan.h"

#include "tanren/base/loss_seeds.h"
#include "tanren/blocks/block_trail.h"
#include "tanren/precision/autocast_scope.h"
#include "tanren/train/accumulate.h"
#include "tanren/train/passes.h"
#include "tanren/train/prepared.h"

#include <gtest/gtest.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

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

// The same gradients with up to `most` microbatches in flight.
at::Tensor in_flight(TinyRun& run, size_t most) {
  Phase& phase = begun_phase(run);
  Gradients& gradients = run.objective().gradients;
  gradients.zero();
  const GlobalBatch batch = run.loader->next();
  const Batch whole = prepared(batch.local, run.state.task, run.parts);
  const WindowScope window(run.parts.plan.precision, run.parts.ranks->open_windows());
  const PassContext context{phase, run.state, run.parts, batch};
  const Pending everything(phase.objectives.size());
  std::deque<ForwardPass> passes;
  const auto finish_first = [&] {
    backward_pass(context, passes.front(), everything, /*is_last=*/false);
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
  batch.counts["samples"] = 24;  // the count over three ranks
  EXPECT_EQ(seed_of(objective, "cross_entropy", "samples", batch), scale / 24);
  objective.spec.terms = {{"cross_entropy", 0.25}, {"told", 0}};
  EXPECT_EQ(seed_of(objective, "cross_entropy", "samples", batch), 0.25 * scale / 24);
  EXPECT_EQ(seed_of(objective, "told", "samples", batch), std::nullopt);
  EXPECT_EQ(seed_of(objective, "another", "samples", batch), std::nullopt);
  batch.counts["samples"] = 0;
  EXPECT_EQ(seed_of(objective, "cross_entropy", "samples", batch), std::nullopt);
}

at::Tensor scores_loss(const Batch& batch, const at::Tensor& weight) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::Tensor inputs = batch["inputs"].flatten(1).to(weight.scalar_type());
  return at::cross_entropy_loss(inputs.matmul(weight.t()), batch["labels"], {}, at::Reduction::Sum);
}

// A function whose forward computes the gradient along with the loss, as a compiled graph does. Its
// backward returns that gradient.
struct GradientAtOnce : torch::autograd::Function<GradientAtOnce> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const Batch& batch,
                            const at::Tensor& weight) {
    const at::AutoGradMode with_gradients(true);
    // Disables autocast for this backward too, as where the step's own backward runs.
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const at::Tensor leaf = weight.detach().requires_grad_();
    const at::Tensor loss = scores_loss(batch, leaf);
    const at::Tensor seed = LossSeedsScope::current()->of("cross_entropy", "samples",
                                                          loss.scalar_type(), loss.device());
    context->saved_data["seed"] = seed;
    context->saved_data["gradient"] = torch::autograd::grad({loss}, {leaf}, {seed}).at(0);
    return loss.detach();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    if (!gradients[0].is_same(context->saved_data["seed"].toTensor())) {
      throw Error("the backward begins with another seed than the forward was given");
    }
    return {at::Tensor(), context->saved_data["gradient"].toTensor()};
  }
};

// The gradients of a window of a linear layer.
at::Tensor linear_gradient(const std::string& mode, bool at_once) {
  auto config = in_thirds("mlp", mode);
  const auto module = std::make_shared<torch::nn::Module>("linear");
  at::manual_seed(11);
  const at::Tensor weight = module->register_parameter("weight", at::randn({5, 64}));
  Task task{.module = module};
  task.phases.emplace_back().forward = [weight, at_once](const Batch& batch) {
    const at::Tensor sum =
        at_once ? GradientAtOnce::apply(batch, weight) : scores_loss(batch, weight);
    return Terms{{.name = "cross_entropy", .sum = sum}};
  };
  TinyRun run(config, nullptr, task);
  run.objective().spec.terms = {{"cross_entropy", 0.75}};
  return one_by_one(run);
}

// Issue 30. The seed contains the weight of the term, the scale of fp16 and the global count.
TEST(LossSeeds, that_a_forward_is_given_are_those_with_which_the_backward_begins) {
  for (const char* mode : {"fp64", "fp16"}) {
    const at::Tensor gradient = linear_gradient(mode, /*at_once=*/true);
    EXPECT_GT(gradient.abs().max().item<double>(), 0) << mode;
    EXPECT_TRUE(at::equal(gradient, linear_gradient(mode, /*at_once=*/false))) << mode;
  }
}

// Whether each forward of an update has seeds.
std::vector<bool> have_seeds(Task task) {
  std::vector<bool> seen;
  for (PhaseSpec& phase : task.phases) {
    phase.forward = [&seen, inner = phase.forward](const Batch& batch) {
      seen.push_back(LossSeedsScope::current() != nullptr);
      return inner(batch);
    };
  }
  TinyRun(gan_config(), nullptr, std::move(task)).step();
  EXPECT_EQ(LossSeedsScope::current(), nullptr);
  return seen;
}

TEST(LossSeeds, are_given_to_a_forward_of_one_objective_and_not_to_one_of_several) {
  EXPECT_EQ(have_seeds(two_phase_gan()), (std::vector<bool>{true, true}));
  EXPECT_EQ(have_seeds(one_forward_gan()), (std::vector<bool>{false}));
}

}  // namespace
}  // namespace tanren::testing
