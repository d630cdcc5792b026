#include "tanren/train/device.h"

#include <gtest/gtest.h>

#include <map>

namespace tanren {
namespace {

Environment having(std::map<std::string, std::string> variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

TEST(WithWorld, a_machine_knows_its_ranks_and_where_they_meet) {
  World world;
  world.rank = 5;
  world.size = 8;
  world.local_rank = 1;
  world.local_size = 4;
  world.host = "10.0.0.1";
  world.port = 29500;
  world.launcher = "torchrun";
  const Machine machine = with_world({}, world, having({}));
  EXPECT_EQ(machine.rank, 5);
  EXPECT_EQ(machine.world_size, 8);
  EXPECT_EQ(machine.local_rank, 1);
  EXPECT_EQ(machine.local_ranks, 4);
  EXPECT_EQ(machine.launcher, "torchrun");
  EXPECT_EQ(machine.rendezvous, "10.0.0.1:29500");
}

TEST(WithWorld, alone_it_is_as_it_was) {
  Machine probed;
  probed.cores = 6;
  const Machine machine = with_world(probed, {}, having({{"SLURM_CPUS_PER_TASK", "6"}}));
  EXPECT_EQ(machine.cores, 6);
  EXPECT_EQ(machine.world_size, 1);
  EXPECT_EQ(machine.launcher, "");
  EXPECT_EQ(machine.rendezvous, "");
  EXPECT_FALSE(machine.own_cores);
}

TEST(WithWorld, cores_are_a_ranks_own_where_slurm_gave_it_as_many) {
  World world;
  world.size = world.local_size = 2;
  world.launcher = "slurm";
  Machine probed;
  probed.cores = 4;
  EXPECT_TRUE(with_world(probed, world, having({{"SLURM_CPUS_PER_TASK", "4"}})).own_cores);
  EXPECT_FALSE(with_world(probed, world, having({{"SLURM_CPUS_PER_TASK", "2"}})).own_cores);
  EXPECT_FALSE(with_world(probed, world, having({})).own_cores);
  world.launcher = "torchrun";
  EXPECT_FALSE(with_world(probed, world, having({{"SLURM_CPUS_PER_TASK", "4"}})).own_cores);
}

}  // namespace
}  // namespace tanren
