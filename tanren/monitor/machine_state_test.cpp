#include "tanren/monitor/machine_state.h"
#include "tanren/base/testing.h"
#include "tanren/monitor/monitor_test_util.h"
#include "tanren/monitor/process_state.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(MachineState, a_machine_that_tells_nothing_is_all_zeros) {
  const testing::TemporaryFolder root;
  const MachineState state = read_machine(root.path());
  EXPECT_EQ(state.cores, 0);
  EXPECT_EQ(state.total_bytes, 0);
  EXPECT_FALSE(state.cgroup_used_bytes);
  EXPECT_FALSE(state.cgroup_cpu_seconds);
}

TEST(MachineState, files_that_are_cut_or_odd_are_passed_over) {
  const FixtureRoot root;
  root.write("proc/stat", "cpu  12\ncpu0");
  root.write("proc/meminfo", "MemTotal:\nMemAvailable: many kB\n\n:");
  root.write("proc/loadavg", "");
  root.write("proc/self/cgroup", "nonsense\n0::\n");
  const MachineState state = read_machine(root.path());
  EXPECT_EQ(state.busy_ticks, 12);
  EXPECT_EQ(state.cores, 1);
  EXPECT_EQ(state.total_bytes, 0);
}

TEST(MachineState, ticks_of_waiting_and_of_other_machines_are_not_busy) {
  const FixtureRoot root;
  root.machine();
  const MachineState state = read_machine(root.path());
  EXPECT_EQ(state.cores, 2);
  EXPECT_EQ(state.total_ticks, 100 + 20 + 30 + 400 + 50 + 1 + 2 + 7);
  EXPECT_EQ(state.busy_ticks, 100 + 20 + 30 + 1 + 2);
  EXPECT_DOUBLE_EQ(state.load[1], 2.16);
  EXPECT_EQ(state.total_bytes, 24000 * kMiB);
  EXPECT_EQ(state.available_bytes, 21000 * kMiB);
  EXPECT_EQ(state.swap_free_bytes, 512 * kMiB);
  EXPECT_FALSE(state.cgroup_limit_bytes);
}

TEST(MachineState, the_lowest_limit_of_version_2_counts_with_the_use_of_its_group) {
  const FixtureRoot root;
  root.machine();
  root.write("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0\n");
  root.write("proc/self/cgroup", "0::/outer/inner\n");
  const std::string outer = "sys/fs/cgroup/outer/", inner = outer + "inner/";
  root.write(inner + "memory.max", "max\n");
  root.write(inner + "memory.current", "1048576\n");
  root.write(inner + "cpu.stat", "usage_usec 2500000\nuser_usec 1\n");
  root.write(outer + "memory.max", "8388608\n");
  root.write(outer + "memory.current", "4194304\n");
  root.write(outer + "memory.stat", "anon 1\ninactive_file 2097152\n");
  root.write(outer + "cpu.max", "50000 100000\n");
  root.write(outer + "cpu.stat", "usage_usec 9000000\n");
  const MachineState state = read_machine(root.path());
  EXPECT_EQ(state.cgroup_limit_bytes, 8 * kMiB);
  EXPECT_EQ(state.cgroup_used_bytes, 4 * kMiB);
  EXPECT_EQ(state.cgroup_cache_bytes, 2 * kMiB);
  EXPECT_DOUBLE_EQ(state.allowed_cores, 0.5);
  EXPECT_DOUBLE_EQ(*state.cgroup_cpu_seconds, 2.5);
}

TEST(MachineState, version_1_has_its_hierarchies_apart_and_no_limit_as_a_huge_number) {
  const FixtureRoot root;
  root.machine();
  root.write("proc/self/cgroup", "4:memory:/gone/here\n2:cpuacct:/\n1:cpu:/\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "3145728\n");
  root.write("sys/fs/cgroup/memory/memory.stat", "cache 9\ntotal_inactive_file 1048576\n");
  root.write("sys/fs/cgroup/cpuacct/cpuacct.usage", "1500000000\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  const MachineState state = read_machine(root.path());
  EXPECT_FALSE(state.cgroup_limit_bytes);
  EXPECT_EQ(state.cgroup_used_bytes, 3 * kMiB);
  EXPECT_EQ(state.cgroup_cache_bytes, kMiB);
  EXPECT_DOUBLE_EQ(state.allowed_cores, 1.5);
  EXPECT_DOUBLE_EQ(*state.cgroup_cpu_seconds, 1.5);
}

TEST(MachineState, this_machine_tells_of_itself) {
  const MachineState state = read_machine();
  EXPECT_GT(state.cores, 0);
  EXPECT_GT(state.allowed_cores, 0);
  EXPECT_LE(state.busy_ticks, state.total_ticks);
  EXPECT_GT(state.total_bytes, state.available_bytes);
}

TEST(CountOfList, counts_ranges_and_refuses_what_is_none) {
  EXPECT_EQ(count_of_list("0-3,8"), 5);
  EXPECT_EQ(count_of_list("7"), 1);
  EXPECT_EQ(count_of_list(""), 0);
  EXPECT_EQ(count_of_list("3-1"), 0);
  EXPECT_EQ(count_of_list("a-b"), 0);
}

TEST(ProcessState, a_pid_that_is_gone_or_a_zombie_or_cut_short_is_nothing) {
  const FixtureRoot root;
  root.machine();
  root.write("proc/5/stat", "5 (left) Z 1 5 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9 0 0 0 0\n");
  root.write("proc/6/stat", "6 (cut) R 1 6");
  root.write("proc/7/stat", "7 no name");
  for (const int64_t pid : {4, 5, 6, 7}) EXPECT_FALSE(read_process(pid, root.path())) << pid;
}

TEST(ProcessState, a_name_with_brackets_and_blanks_does_not_shift_the_fields) {
  const FixtureRoot root;
  root.machine();
  root.process(31, "a) R 9 (b");
  const auto state = read_process(31, root.path());
  ASSERT_TRUE(state);
  EXPECT_EQ(state->name, "a) R 9 (b");
  EXPECT_EQ(state->threads, 4);
  EXPECT_EQ(state->start_ticks, 2000);
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  EXPECT_DOUBLE_EQ(state->cpu_seconds, 700 / ticks);
  EXPECT_DOUBLE_EQ(state->age_seconds, 1000 - 2000 / ticks);
  EXPECT_EQ(state->resident_bytes, 256 * ::sysconf(_SC_PAGE_SIZE));
}

TEST(ProcessState, this_process_is_told_with_its_threads_and_memory) {
  const auto state = read_process(::getpid());
  ASSERT_TRUE(state);
  EXPECT_GE(state->threads, 1);
  EXPECT_GT(state->resident_bytes, 100000);
}

}  // namespace
}  // namespace tanren
