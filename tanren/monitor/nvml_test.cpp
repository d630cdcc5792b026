#include "tanren/monitor/nvml.h"
#include "tanren/monitor/monitor_test_util.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tanren {
namespace {

class Nvml : public ::testing::Test {
 protected:
  void TearDown() override { ::unsetenv("STAND_IN_NVML"); }
};

TEST_F(Nvml, a_machine_without_the_library_has_no_devices_and_a_reason) {
  const Devices devices = open_nvml("libnvidia-ml-absent.so.1");
  EXPECT_EQ(devices.reader, nullptr);
  EXPECT_EQ(devices.why_none, "no NVIDIA driver here (libnvidia-ml-absent.so.1 is not there)");
}

TEST_F(Nvml, a_library_that_is_no_nvml_is_a_reason) {
  const Devices devices = open_nvml("libm.so.6");
  EXPECT_EQ(devices.reader, nullptr);
  EXPECT_EQ(devices.why_none, "libm.so.6 is no NVML: it lacks nvmlInit or its kin");
}

TEST_F(Nvml, a_driver_that_does_not_match_its_library_is_a_reason) {
  ::setenv("STAND_IN_NVML", "mismatch", 1);
  const Devices devices = open_nvml(TANREN_NVML_new);
  EXPECT_EQ(devices.reader, nullptr);
  EXPECT_EQ(devices.why_none, "NVML does not start: Driver/library version mismatch");
}

TEST_F(Nvml, a_driver_without_devices_lists_none) {
  ::setenv("STAND_IN_NVML", "none", 1);
  const Devices devices = open_nvml(TANREN_NVML_new);
  ASSERT_NE(devices.reader, nullptr);
  EXPECT_TRUE(devices.reader->read().empty());
}

TEST_F(Nvml, a_device_that_is_lost_is_listed_with_its_problem_beside_the_others) {
  const auto read = open_nvml(TANREN_NVML_new).reader->read();
  ASSERT_EQ(read.size(), 4u);
  EXPECT_EQ(read[2].index, 2);
  EXPECT_EQ(read[2].problem, "GPU is lost");
  EXPECT_EQ(read[3].index, 3);
  EXPECT_EQ(read[3].problem, "");
}

TEST_F(Nvml, what_a_device_does_not_support_is_absent) {
  const DeviceState state = open_nvml(TANREN_NVML_new).reader->read()[1];
  EXPECT_EQ(state.name, "Stand-in B");
  EXPECT_FALSE(state.total_bytes);
  EXPECT_FALSE(state.busy_share);
  EXPECT_FALSE(state.watts);
  EXPECT_EQ(state.celsius, 61);
  EXPECT_TRUE(state.processes.empty());
  EXPECT_EQ(state.problem, "");
}

TEST_F(Nvml, a_device_tells_memory_use_and_processes) {
  const Devices devices = open_nvml(TANREN_NVML_new);
  EXPECT_EQ(devices.reader->driver(), "999.1");
  const DeviceState state = devices.reader->read()[0];
  EXPECT_EQ(state.name, "Stand-in A");
  EXPECT_EQ(state.pci_bus, "00000000:17:00.0");
  EXPECT_EQ(state.total_bytes, 80 * kGiB);
  EXPECT_EQ(state.used_bytes, 3 * kGiB);
  EXPECT_EQ(state.free_bytes, 76 * kGiB);
  EXPECT_EQ(state.reserved_bytes, kGiB);
  EXPECT_DOUBLE_EQ(*state.busy_share, 0.97);
  EXPECT_DOUBLE_EQ(*state.memory_busy_share, 0.45);
  EXPECT_DOUBLE_EQ(*state.watts, 312.5);
  EXPECT_DOUBLE_EQ(*state.watts_limit, 700);
  // 42 only draws; 1000 computes and draws; 1001 has no byte count.
  ASSERT_EQ(state.processes.size(), 3u);
  EXPECT_EQ(state.processes[0].pid, 42);
  EXPECT_EQ(state.processes[1].pid, 1000);
  EXPECT_EQ(state.processes[1].bytes, kGiB);
  EXPECT_EQ(state.processes[2].pid, 1001);
  EXPECT_FALSE(state.processes[2].bytes);
}

TEST_F(Nvml, more_processes_than_were_asked_for_are_all_listed) {
  const DeviceState state = open_nvml(TANREN_NVML_new).reader->read()[3];
  ASSERT_EQ(state.processes.size(), 300u);
  EXPECT_EQ(state.processes.back().pid, 1299);
}

TEST_F(Nvml, an_old_driver_tells_the_same_in_its_own_structures) {
  const DeviceState state = open_nvml(TANREN_NVML_old).reader->read()[0];
  EXPECT_EQ(state.used_bytes, 4 * kGiB);  // including the reserved bytes
  EXPECT_FALSE(state.reserved_bytes);
  EXPECT_FALSE(state.watts_limit);
  EXPECT_EQ(state.pci_bus, "");
  ASSERT_EQ(state.processes.size(), 2u);
  EXPECT_EQ(state.processes[0].bytes, kGiB);
  EXPECT_FALSE(state.processes[1].bytes);
}

}  // namespace
}  // namespace tanren
