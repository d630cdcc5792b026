// Batch norm over ranks is batch norm of all samples at once: with every module of torch's, and
// with ours.
#include "tanren/base/error.h"
#include "tanren/blocks/across_ranks.h"
#include "tanren/blocks/block.h"
#include "tanren/blocks/recompute.h"
#include "tanren/comm/on_ranks_test_util.h"
#include "tanren/ops/batch_norm.h"
#include "tanren/ops/synchronised_norm.h"
#include "tanren/parallel/ranks.h"

#include <ATen/ATen.h>
#include <ATen/ops/batch_norm_native.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <vector>

namespace tanren {
namespace {

using testing::on_ranks;

const std::vector<int64_t> kShares = {5, 0, 2};  // samples of the ranks

std::unique_ptr<Ranks> synchronised(Communicator& comm) {
  ParallelPlan plan;
  plan.buffers = RankBuffers::synchronised;
  return std::make_unique<Ranks>(std::shared_ptr<Communicator>(&comm, [](Communicator*) {}), plan);
}

struct NormInput {
  at::Tensor x, weight, bias, mean, var, seeds, residual;

  // Samples [begin, end), with copies of parameters and statistics; nothing needs a gradient.
  NormInput part(int64_t begin, int64_t end) const {
    const auto cut = [&](const at::Tensor& t) {
      return t.defined() ? t.slice(0, begin, end).clone() : t;
    };
    return {cut(x),      weight.clone(), bias.clone(), mean.clone(),
            var.clone(), cut(seeds),     cut(residual)};
  }
  NormInput to(at::ScalarType images, at::ScalarType numbers) const {
    const auto of = [](const at::Tensor& t, at::ScalarType type) {
      return t.defined() ? t.to(type) : t;
    };
    return {of(x, images),    of(weight, numbers), of(bias, numbers),   of(mean, numbers),
            of(var, numbers), of(seeds, images),   of(residual, images)};
  }
};

NormInput make_input(std::vector<int64_t> sizes, double center = 5) {
  at::manual_seed(3);
  sizes.insert(sizes.begin(), std::accumulate(kShares.begin(), kShares.end(), int64_t{0}));
  const int64_t channels = sizes[1];
  const auto options = at::TensorOptions(at::kDouble);
  return {at::randn(sizes, options) + center,
          at::randn({channels}, options),
          at::randn({channels}, options),
          at::zeros({channels}, options),
          at::ones({channels}, options),
          at::randn(sizes, options),
          {}};
}

struct NormOutput {
  at::Tensor y, dx, d_weight, d_bias, d_residual, mean, var;
};
using Normaliser = std::function<at::Tensor(const NormInput&)>;

at::Tensor by_torch(const NormInput& in) {
  return at::batch_norm(in.x, in.weight, in.bias, in.mean, in.var, /*training=*/true,
                        /*momentum=*/0.3, /*eps=*/1e-5, /*cudnn_enabled=*/false);
}
at::Tensor by_us(const NormInput& in) {
  return batch_norm(in.x, {.weight = in.weight,
                           .bias = in.bias,
                           .running_mean = in.mean,
                           .running_var = in.var,
                           .momentum = 0.3,
                           .relu = true,
                           .residual = in.residual});
}

NormOutput normed_by(NormInput in, const Normaliser& normalise) {
  std::vector<at::Tensor> leaves = {in.x, in.weight, in.bias};
  if (in.residual.defined()) leaves.push_back(in.residual);
  for (at::Tensor& leaf : leaves) leaf.requires_grad_();
  NormOutput out;
  out.y = normalise(in);
  const auto gradients = torch::autograd::grad({out.y}, leaves, {in.seeds});
  out.dx = gradients[0];
  out.d_weight = gradients[1];
  out.d_bias = gradients[2];
  if (in.residual.defined()) out.d_residual = gradients[3];
  out.y = out.y.detach();
  out.mean = in.mean;
  out.var = in.var;
  return out;
}

// The ranks' outputs put together; their statistics are bitwise the same.
NormOutput normed_over_ranks(const NormInput& in, const Normaliser& normalise) {
  std::vector<NormOutput> outputs(kShares.size());
  on_ranks(static_cast<int>(kShares.size()), [&](Communicator& comm) {
    const auto ranks = synchronised(comm);
    const auto rank = static_cast<size_t>(comm.rank());
    const int64_t begin =
        std::accumulate(kShares.begin(), kShares.begin() + comm.rank(), int64_t{0});
    const AcrossRanksScope scope(ranks->across_ranks());
    outputs[rank] = normed_by(in.part(begin, begin + kShares[rank]), normalise);
  });
  std::vector<at::Tensor> y, dx, d_residual;
  NormOutput all = outputs[0];
  for (const NormOutput& output : outputs) {
    EXPECT_TRUE(at::equal(output.mean, outputs[0].mean));
    EXPECT_TRUE(at::equal(output.var, outputs[0].var));
    y.push_back(output.y);
    dx.push_back(output.dx);
    if (output.d_residual.defined()) d_residual.push_back(output.d_residual);
    if (&output == &outputs[0]) continue;
    all.d_weight = all.d_weight + output.d_weight;
    all.d_bias = all.d_bias + output.d_bias;
  }
  all.y = at::cat(y);
  all.dx = at::cat(dx);
  if (!d_residual.empty()) all.d_residual = at::cat(d_residual);
  return all;
}

double apart(const at::Tensor& own, const at::Tensor& expected) {
  return ((own.to(at::kDouble) - expected).norm() / expected.norm()).item<double>();
}

void expect_near(const NormOutput& own, const NormOutput& expected, double bound,
                 double bound_of_statistics) {
  EXPECT_LT(apart(own.y, expected.y), bound);
  EXPECT_LT(apart(own.dx, expected.dx), bound);
  EXPECT_LT(apart(own.d_weight, expected.d_weight), bound);
  EXPECT_LT(apart(own.d_bias, expected.d_bias), bound);
  if (expected.d_residual.defined()) {
    EXPECT_LT(apart(own.d_residual, expected.d_residual), bound);
  }
  EXPECT_LT(apart(own.mean, expected.mean), bound_of_statistics);
  EXPECT_LT(apart(own.var, expected.var), bound_of_statistics);
}

TEST(BatchNormOverRanks, equals_torchs_of_all_samples_whatever_each_rank_has) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{3}, {3, 4}, {3, 4, 2}, {3, 2, 2, 2}}) {
    const NormInput input = make_input(sizes);
    const NormOutput expected = normed_by(input.part(0, 7), by_torch);
    expect_near(normed_over_ranks(input, by_torch), expected, 1e-12, 1e-12);
    expect_near(normed_over_ranks(input.to(at::kFloat, at::kFloat), by_torch), expected, 1e-5,
                1e-6);
  }
}

TEST(BatchNormOverRanks, of_half_precision_equals_torchs_to_its_rounding) {
  for (const auto& [type, bound] : {std::pair{at::kBFloat16, 1e-2}, std::pair{at::kHalf, 2e-3}}) {
    const NormInput input = make_input({3, 8, 8}).to(type, at::kFloat);
    const NormOutput expected = normed_by(input.to(at::kDouble, at::kDouble).part(0, 7), by_torch);
    const NormOutput own = normed_over_ranks(input, by_torch);
    EXPECT_EQ(own.y.scalar_type(), type);
    EXPECT_EQ(own.dx.scalar_type(), type);
    EXPECT_EQ(own.d_weight.scalar_type(), at::kFloat);
    expect_near(own, expected, bound, 1e-6);
  }
}

TEST(BatchNormOverRanks, of_our_own_in_channels_last_equals_that_of_all_samples) {
  for (const auto& [type, bound] : {std::pair{at::kFloat, 5e-5}, std::pair{at::kBFloat16, 5e-2}}) {
    for (const bool with_residual : {false, true}) {
      NormInput input = make_input({37, 5, 3});
      if (with_residual) input.residual = at::randn_like(input.x);
      input = input.to(type, at::kFloat);
      for (at::Tensor* images : {&input.x, &input.seeds, &input.residual}) {
        if (images->defined()) *images = images->contiguous(at::MemoryFormat::ChannelsLast);
      }
      const NormOutput expected = normed_by(input.to(at::kDouble, at::kDouble).part(0, 7), by_us);
      expect_near(normed_over_ranks(input, by_us), expected, bound, 1e-6);
    }
  }
}

TEST(BatchNormOverRanks, a_mean_far_from_0_costs_no_digits_of_the_variance) {
  const NormInput input = make_input({4, 16, 16}, 1000).to(at::kFloat, at::kFloat);
  const NormOutput expected = normed_by(input.to(at::kDouble, at::kDouble).part(0, 7), by_torch);
  const NormOutput own = normed_over_ranks(input, by_torch);
  EXPECT_LT(apart(own.var, expected.var), 1e-5);
  EXPECT_LT(apart(own.mean, expected.mean), 1e-6);
}

TEST(BatchNormOverRanks, needs_neither_parameters_nor_statistics) {
  const NormInput input = make_input({3, 4});
  const auto bare = [](const NormInput& in) {
    return at::batch_norm(in.x, {}, {}, {}, {}, true, 0.1, 1e-5, false);
  };
  const at::Tensor expected = bare(input);
  on_ranks(2, [&](Communicator& comm) {
    const auto ranks = synchronised(comm);
    const AcrossRanksScope scope(ranks->across_ranks());
    const int64_t begin = comm.rank() == 0 ? 0 : 3, end = comm.rank() == 0 ? 3 : 7;
    const NormInput own = input.part(begin, end);
    own.x.requires_grad_();
    const at::Tensor y = bare(own);
    EXPECT_LT(apart(y.detach(), expected.slice(0, begin, end)), 1e-12);
    EXPECT_TRUE(torch::autograd::grad({y.sum()}, {own.x})[0].defined());
  });
}

TEST(BatchNormOverRanks, evaluation_and_instance_norm_ask_nobody) {
  const NormInput input = make_input({3, 4, 2});
  const auto evaluated = [](const NormInput& in) {
    return at::batch_norm(in.x, in.weight, in.bias, in.mean, in.var, false, 0.1, 1e-5, false);
  };
  const auto by_sample = [](const NormInput& in) {
    return at::instance_norm(in.x, in.weight, in.bias, {}, {}, true, 0.1, 1e-5, false);
  };
  const at::Tensor expected_evaluated = evaluated(input), expected_by_sample = by_sample(input);
  const ThreadGroup group(2);
  on_ranks(group, 2, [&](Communicator& comm) {
    const auto ranks = synchronised(comm);
    const AcrossRanksScope scope(ranks->across_ranks());
    EXPECT_TRUE(at::equal(evaluated(input), expected_evaluated));
    EXPECT_TRUE(at::equal(by_sample(input), expected_by_sample));
  });
  EXPECT_EQ(group.num_operations(), 0);
}

TEST(BatchNormOverRanks, without_a_scope_is_torchs_to_the_last_bit) {
  install_synchronised_norm();
  const NormInput input = make_input({3, 4, 2}).to(at::kFloat, at::kFloat);
  const auto by_native = [](const NormInput& in) {
    return at::native::batch_norm(in.x, in.weight, in.bias, in.mean, in.var, true, 0.3, 1e-5,
                                  false);
  };
  const NormOutput own = normed_by(input.part(0, 7), by_torch);
  const NormOutput expected = normed_by(input.part(0, 7), by_native);
  EXPECT_TRUE(at::equal(own.y, expected.y));
  EXPECT_TRUE(at::equal(own.dx, expected.dx));
  EXPECT_TRUE(at::equal(own.var, expected.var));
}

TEST(BatchNormOverRanks, costs_one_exchange_forward_and_one_backward) {
  const NormInput input = make_input({3, 4, 2});
  const ThreadGroup group(2);
  on_ranks(group, 2, [&](Communicator& comm) {
    const auto ranks = synchronised(comm);
    const AcrossRanksScope scope(ranks->across_ranks());
    normed_by(input.part(0, comm.rank()), by_torch);
  });
  EXPECT_EQ(group.num_operations(), 2);
}

// Backward runs outside of the scope, as on an accelerator, where it has a thread of its own.
TEST(BatchNormOverRanks, of_a_recomputed_block_goes_over_the_ranks_again_and_counts_once) {
  const NormInput input = make_input({3, 4, 2});
  const auto doubled = [](const NormInput& in) { return by_torch(in) * 2; };
  const NormOutput expected = normed_by(input.part(0, 7), doubled);
  const ThreadGroup group(2);
  on_ranks(group, 2, [&](Communicator& comm) {
    const auto ranks = synchronised(comm);
    const int64_t begin = comm.rank() == 0 ? 0 : 5, end = comm.rank() == 0 ? 5 : 7;
    NormInput in = input.part(begin, end);
    for (at::Tensor* leaf : {&in.x, &in.weight, &in.bias}) leaf->requires_grad_();
    at::Tensor y;
    {
      const AcrossRanksScope scope(ranks->across_ranks());
      const RecomputeScope recompute({"*"}, {in.mean, in.var});
      y = run_block("norm", in.x * 1, [&in](const at::Tensor& x) {
        NormInput inner = in;
        inner.x = x;
        return by_torch(inner) * 2;
      });
    }
    EXPECT_LT(apart(in.var, expected.var), 1e-12);
    const auto gradients = torch::autograd::grad({y}, {in.x}, {in.seeds});
    EXPECT_LT(apart(gradients[0], expected.dx.slice(0, begin, end)), 1e-12);
    EXPECT_LT(apart(in.var, expected.var), 1e-12);
  });
  EXPECT_EQ(group.num_operations(), 3);
}

TEST(BatchNormOverRanks, refuses_second_derivatives) {
  const NormInput input = make_input({3, 4});
  on_ranks(2, [&](Communicator& comm) {
    const auto ranks = synchronised(comm);
    const AcrossRanksScope scope(ranks->across_ranks());
    NormInput in = input.part(0, 3);
    in.x.requires_grad_();
    EXPECT_THROW(torch::autograd::grad({by_torch(in).square().sum()}, {in.x}, {}, true, true),
                 Error);
  });
}

TEST(BatchNormOverRanks, is_there_only_where_it_is_asked_for_and_there_are_others) {
  EXPECT_EQ(Ranks().across_ranks(), nullptr);
  on_ranks(2, [&](Communicator& comm) {
    const Ranks mean(std::shared_ptr<Communicator>(&comm, [](Communicator*) {}), {});
    EXPECT_EQ(mean.across_ranks(), nullptr);
    EXPECT_NE(synchronised(comm)->across_ranks(), nullptr);
  });
  EXPECT_EQ(AcrossRanksScope::current(), nullptr);
}

}  // namespace
}  // namespace tanren
