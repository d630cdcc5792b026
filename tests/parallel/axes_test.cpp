// A mesh of stages and replicas: what is shared along the data axis depends only on the replicas.
// Each stage here computes the whole model, so it ends with the weights of a run without stages.
#include "tanren/parallel/ranks_test_util.h"
#include "tanren/train/on_ranks.h"
#include "tests/support/rank_run.h"
#include "tests/support/token_data.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

namespace tanren::testing {
namespace {

// The weights of each rank after four updates. One of 3 replicas has no sample of the last batch.
std::vector<at::Tensor> weights_on(int stages, int replicas, int64_t zero) {
  auto config = ranks_config("fp64");
  config.optimizer.kind = "sgd";  // a gradient twice as large is a step twice as long
  config.clip.norm = 0;           // no clipping: the norm is that of the whole world
  config.parallel.zero = zero;
  const TokenData data(38);
  std::vector<at::Tensor> weights(static_cast<size_t>(stages * replicas));
  Mesh(stages, replicas).run([&](const RankAxes& axes) {
    RankRun run(config, data, axes.data.communicator());
    // Waits until all ranks have built their model, because an update seeds the generator that
    // models draw from.
    axes.world.communicator().sum(at::zeros({1}));
    run.batches.reset();
    run.parts.ranks = std::make_shared<Ranks>(axes, run.parts.plan.parallel);
    run.batches =
        std::make_unique<BatchStream>(make_loader(run.state, run.parts, data), *run.parts.ranks);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(run.step().objectives[0].verdict.action, Action::apply);
    }
    weights[static_cast<size_t>(axes.world.rank())] = run.weights();
  });
  return weights;
}

TEST(RankMesh, samples_counts_and_gradients_are_those_of_the_replicas) {
  for (const int64_t zero : {0, 2}) {
    const auto flat = weights_on(1, 3, zero);
    const auto mesh = weights_on(2, 3, zero);
    for (size_t rank = 0; rank < mesh.size(); ++rank) {
      EXPECT_TRUE(at::equal(mesh[rank], flat[rank % 3])) << "rank " << rank << ", zero " << zero;
    }
  }
}

TEST(RankMesh, each_rank_has_other_draws_of_a_generator_and_the_first_stage_those_without_stages) {
  const Mesh mesh(2, 3), flat(1, 3);
  RunState run;
  run.seed = 7;
  const auto drawn_by = [&](const Mesh& ranks, int rank) {
    reseed(run, Ranks(ranks.axes(rank), {}), Draws::update);
    return at::randint(int64_t{1} << 40, {1}).item<int64_t>();
  };
  std::set<int64_t> drawn;
  for (int rank = 0; rank < 6; ++rank) drawn.insert(drawn_by(mesh, rank));
  EXPECT_EQ(drawn.size(), 6U);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(drawn_by(mesh, rank), drawn_by(flat, rank));
}

}  // namespace
}  // namespace tanren::testing
