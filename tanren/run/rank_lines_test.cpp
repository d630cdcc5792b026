#include "tanren/run/rank_lines.h"

#include "tanren/plan/planner.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

// The plan of rank 1 of two replicas of this process, on `kind`'s devices 0 and 1.
Plan plan_of(const std::string& kind, const std::vector<std::string>& names) {
  Plan plan;
  plan.device.device = kind == "cpu" ? "cpu" : kind + ":0";
  plan.device.threads = 4;
  plan.device.names = names;
  plan.parallel.backend = Backend::threads;
  plan.parallel.world_size = plan.parallel.replicas = 2;
  if (kind != "cpu") plan.parallel.devices = {0, 1};
  return replica_plan(plan, 1);
}

std::string line_of(const Plan& plan) { return rank_line(plan, "threads", "node-a", 42); }

TEST(RankLine, names_the_device_that_the_rank_computes_on) {
  EXPECT_EQ(line_of(plan_of("cuda", {"NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3"})),
            "rank 1 of 2: cuda:1 (NVIDIA H100 80GB HBM3), 4 threads, threads, node-a, process 42");
}

TEST(RankLine, gives_no_name_where_none_is_known) {
  const std::string unnamed = "rank 1 of 2: cuda:1, 4 threads, threads, node-a, process 42";
  EXPECT_EQ(line_of(plan_of("cuda", {})), unnamed);
  EXPECT_EQ(line_of(plan_of("cuda", {"NVIDIA A100-SXM4-40GB"})), unnamed);
  EXPECT_EQ(line_of(plan_of("cuda", {"NVIDIA A100-SXM4-40GB", ""})), unnamed);
  EXPECT_EQ(line_of(plan_of("other", {})),
            "rank 1 of 2: other:1, 4 threads, threads, node-a, process 42");
}

TEST(RankLine, of_the_cpu_names_no_accelerator_that_is_there_too) {
  EXPECT_EQ(line_of(plan_of("cpu", {"NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3"})),
            "rank 1 of 2: cpu, 4 threads, threads, node-a, process 42");
}

}  // namespace
}  // namespace tanren
