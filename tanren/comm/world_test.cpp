#include "tanren/comm/world.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

namespace tanren {
namespace {

using testing::error_of;
using Variables = std::map<std::string, std::string>;

World world_in(const Variables& variables, const std::string& rendezvous = "") {
  const auto find = [&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  return world_of(find, rendezvous);
}

TEST(World, half_a_torchrun_is_an_error) {
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([] {
                           world_in({{"RANK", "0"}});
                         }),
                         "RANK without WORLD_SIZE");
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([] {
                           world_in({{"WORLD_SIZE", "2"}});
                         }),
                         "WORLD_SIZE without RANK");
}

TEST(World, numbers_that_are_none_or_out_of_range_are_named) {
  const Variables good = {{"RANK", "1"},
                          {"WORLD_SIZE", "2"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "node0"},
                          {"MASTER_PORT", "29500"}};
  for (const auto& [name, value] : Variables{
           {"RANK", "2"}, {"WORLD_SIZE", "two"}, {"LOCAL_RANK", "2"}, {"MASTER_PORT", "80"}}) {
    Variables bad = good;
    bad[name] = value;
    TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { world_in(bad); }),
                           name + " = \"" + value + "\"");
  }
}

TEST(World, several_machines_need_the_address_of_the_first) {
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([] {
                           world_in({{"OMPI_COMM_WORLD_RANK", "0"},
                                     {"OMPI_COMM_WORLD_SIZE", "4"},
                                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                     {"PMIX_NAMESPACE", "job"}});
                         }),
                         "MASTER_ADDR");
}

TEST(World, a_rendezvous_that_is_no_url_is_refused_with_the_reason) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"node0:29500", "neither tcp:// nor file://"},
      {"http://node0:29500", "neither tcp:// nor file://"},
      {"tcp://node0", "no host and port"},
      {"tcp://:29500", "no host and port"},
      {"tcp://node0:", "its port"},
      {"tcp://node0:80", "its port"},
      {"tcp://node0:65536", "its port"},
      {"tcp://node0:29500/run", "its port"},
      {"tcp://::1:29500", "its host"},
      {"tcp://me@node0:29500", "its host"},
      {"file://meet", "its path"},
      {"file:///", "its path"},
      {"file:///tmp/", "its path"}};
  for (const auto& [place, why] : cases) {
    const std::string rendezvous = place;
    World world;
    const std::string error = error_of<ConfigError>([&] { set_rendezvous(world, rendezvous); });
    TANREN_EXPECT_CONTAINS(error, "\"" + rendezvous + "\": ");
    TANREN_EXPECT_CONTAINS(error, why);
  }
}

TEST(World, a_rendezvous_goes_before_the_environment_which_then_need_not_say_where) {
  const Variables ranks = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "1"}};
  EXPECT_THROW(world_in(ranks), ConfigError);
  World world = world_in(ranks, "tcp://node7:29501");
  EXPECT_EQ(place_of(world), "node7:29501");
  EXPECT_EQ(world.rank, 1);
  world = world_in(ranks, "tcp://[fe80::1]:29501");
  EXPECT_EQ(world.host, "fe80::1");
  EXPECT_EQ(world.port, 29501);
  world = world_in(ranks, "file:///shared/meet me");
  EXPECT_EQ(place_of(world), "/shared/meet me");
  EXPECT_EQ(world.port, 0);
  set_rendezvous(world, "");
  EXPECT_EQ(place_of(world), "/shared/meet me");
  EXPECT_EQ(world_in({}, "file:///shared/meet").size, 1);
}

TEST(World, torchrun_s_agent_may_keep_the_store_and_count_the_starts) {
  Variables variables = {{"RANK", "0"},
                         {"WORLD_SIZE", "2"},
                         {"MASTER_PORT", "29500"},
                         {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                         {"TORCHELASTIC_RESTART_COUNT", "3"}};
  EXPECT_TRUE(world_in(variables).has_agent_store);
  EXPECT_EQ(world_in(variables).attempt, "3");
  EXPECT_FALSE(world_in(variables, "tcp://node7:29501").has_agent_store);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  EXPECT_FALSE(world_in(variables).has_agent_store);
}

TEST(World, without_a_launcher_it_is_one) {
  const World world = world_in({{"MASTER_PORT", "29500"}});
  EXPECT_EQ(world.size, 1);
  EXPECT_EQ(world.launcher, "none");
}

TEST(World, says_who_has_set_rank_and_size) {
  Variables variables = {{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  EXPECT_EQ(world_in(variables).launcher, "RANK and WORLD_SIZE");
  variables["TANREN_LAUNCH"] = "1";
  EXPECT_EQ(world_in(variables).launcher, "tanren launch");
  variables["TORCHELASTIC_RUN_ID"] = "none";  // inside it
  EXPECT_EQ(world_in(variables).launcher, "torchrun");
}

TEST(World, of_torchrun) {
  const World world = world_in({{"RANK", "5"},
                                {"TORCHELASTIC_RUN_ID", "none"},
                                {"WORLD_SIZE", "8"},
                                {"LOCAL_RANK", "1"},
                                {"LOCAL_WORLD_SIZE", "4"},
                                {"MASTER_ADDR", "node0"},
                                {"MASTER_PORT", "29500"}});
  EXPECT_EQ(world.rank, 5);
  EXPECT_EQ(world.size, 8);
  EXPECT_EQ(world.local_rank, 1);
  EXPECT_EQ(world.local_size, 4);
  EXPECT_EQ(world.host, "node0");
  EXPECT_EQ(world.port, 29500);
  EXPECT_EQ(world.launcher, "torchrun");
}

TEST(World, of_mpirun_on_one_machine_meets_at_a_port_that_the_job_names) {
  Variables variables = {{"OMPI_COMM_WORLD_RANK", "2"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                         {"PMIX_NAMESPACE", "1234"}};
  const World world = world_in(variables);
  EXPECT_EQ(world.launcher, "openmpi");
  EXPECT_EQ(world.host, "127.0.0.1");
  EXPECT_GE(world.port, 61000);
  variables["OMPI_COMM_WORLD_RANK"] = "0";
  EXPECT_EQ(world_in(variables).port, world.port);
  variables["PMIX_NAMESPACE"] = "1235";
  EXPECT_NE(world_in(variables).port, world.port);
}

TEST(World, of_srun_but_not_of_a_shell_inside_a_job) {
  Variables variables = {{"SLURM_PROCID", "3"},
                         {"SLURM_NTASKS", "8"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.7"},
                         {"SLURM_JOB_ID", "77"}};
  EXPECT_EQ(world_in(variables).size, 1);
  variables["SLURM_STEP_NUM_TASKS"] = "8";
  variables["SLURM_STEP_TASKS_PER_NODE"] = "2(x4)";
  variables["SLURM_STEP_ID"] = "0";
  const World world = world_in(variables);
  EXPECT_EQ(world.rank, 3);
  EXPECT_EQ(world.size, 8);
  EXPECT_EQ(world.local_size, 2);
  EXPECT_EQ(world.local_rank, 1);
  EXPECT_EQ(world.host, "10.0.0.7");
}

}  // namespace
}  // namespace tanren
