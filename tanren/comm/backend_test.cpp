#include "tanren/comm/backend.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/comm/on_ranks_test_util.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <thread>

namespace tanren {
namespace {

using namespace std::chrono_literals;
using testing::error_of;
using testing::world_at;

TEST(Backend, of_no_known_name_is_refused) {
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([] { make_communicator({}, {.backend = "mpi"}); }),
                         "backend \"mpi\" is not known; take auto, gloo or nccl");
}

TEST(Backend, nccl_without_cuda_tensors_is_refused) {
  World world;
  world.size = 2;
  TANREN_EXPECT_CONTAINS(
      error_of<CommError>([&] { make_communicator(world, {.backend = "nccl"}); }),
      "[comm] backend nccl: the tensors are on cpu");
}

TEST(Backend, nccl_without_the_plugin_says_what_is_missing_and_what_to_do) {
  if (why_no_nccl().empty()) GTEST_SKIP() << "the plugin is here";
  World world;
  world.size = 2;
  const std::string error = error_of<CommError>(
      [&] { make_communicator(world, {.backend = "nccl", .device = at::Device(at::kCUDA, 0)}); });
  TANREN_EXPECT_CONTAINS(error, "[comm] backend nccl: the plugin libtanren_cuda.so");
  TANREN_EXPECT_CONTAINS(error, "build it with -DTANREN_CUDA=ON");
}

TEST(Backend, auto_says_why) {
  World world;
  EXPECT_EQ(choose_backend(world, {}).backend, "single");
  world.size = 2;
  EXPECT_EQ(choose_backend(world, {}).backend, "gloo");
  EXPECT_EQ(choose_backend(world, {}).reason, "the tensors are on the CPU");
  EXPECT_EQ(choose_backend(world, {.backend = "gloo"}).reason, "the config says so");
  const CommChoice choice = choose_backend(world, {.device = at::Device(at::kCUDA, 0)});
  EXPECT_EQ(choice.backend, why_no_nccl().empty() ? "nccl" : "gloo");
  EXPECT_FALSE(choice.reason.empty());
}

TEST(Backend, one_rank_needs_no_rendezvous) {
  EXPECT_EQ(make_communicator({}, {.backend = "nccl"})->name(), "single");
}

TEST(Backend, a_rendezvous_in_the_options_goes_before_the_world_s) {
  const testing::TemporaryFolder folder;
  const CommOptions options{.rendezvous = "file://" + (folder.path() / "rendezvous").string(),
                            .timeout = 30s};
  std::vector<std::thread> ranks;
  for (const int rank : {0, 1}) {
    ranks.emplace_back([&, rank] {
      World world;  // names no rendezvous
      world.rank = rank;
      world.size = world.local_size = 2;
      const auto comm = make_communicator(world, options);
      EXPECT_EQ(comm->name(), "gloo");
      at::Tensor mine = at::ones({3});
      comm->sum(mine);
      EXPECT_TRUE(at::equal(mine, at::full({3}, 2.0)));
    });
  }
  for (auto& rank : ranks) rank.join();
}

}  // namespace
}  // namespace tanren
