#include "tanren/monitor/monitor.h"
#include "tanren/monitor/monitor_test_util.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace tanren {
namespace {

class OneDevice final : public DeviceReader {
 public:
  std::vector<DeviceState> read() override {
    return {{.index = 3, .name = "D", .processes = {{10, 4096}, {99, std::nullopt}}}};
  }
  std::string driver() const override { return "1.2"; }
};

class MonitorOf : public ::testing::Test {
 protected:
  MonitorOf() {
    root_.machine();
    folder_.file("config.toml", "");
    folder_.file("lock", "");
    root_.process(10, "tanren", 700);
    root_.open(10, 3, folder_.path() / "lock", 10);
  }
  void wait() const { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

  FixtureRoot root_;
  testing::TemporaryFolder folder_;
};

TEST_F(MonitorOf, the_first_look_has_no_shares_and_without_devices_there_is_a_reason) {
  Monitor monitor({nullptr, "no driver"}, root_.path());
  const Look look = monitor.look();
  EXPECT_EQ(look.interval_seconds, 0);
  EXPECT_FALSE(look.busy_share);
  EXPECT_TRUE(look.devices.empty());
  EXPECT_EQ(look.why_no_devices, "no driver");
  ASSERT_EQ(look.runs.size(), 1u);
  EXPECT_FALSE(look.runs[0].busy_cores);
}

TEST_F(MonitorOf, shares_are_of_the_time_between_two_looks) {
  Monitor monitor({nullptr, ""}, root_.path());
  monitor.look();
  wait();
  root_.write("proc/stat", "cpu  175 20 30 425 50 1 2 7 0 0\ncpu0 1\ncpu1 1\n");
  std::filesystem::remove_all(root_.path() / "proc/10");
  root_.process(10, "tanren", 750);
  root_.open(10, 3, folder_.path() / "lock", 10);
  const Look look = monitor.look();
  EXPECT_DOUBLE_EQ(*look.busy_share, 0.75);
  ASSERT_TRUE(look.runs[0].busy_cores);
  const double used = 50.0 / static_cast<double>(::sysconf(_SC_CLK_TCK));
  EXPECT_DOUBLE_EQ(*look.runs[0].busy_cores * look.interval_seconds, used);
}

TEST_F(MonitorOf, counters_that_did_not_move_or_went_back_give_no_share) {
  Monitor monitor({nullptr, ""}, root_.path());
  monitor.look();
  wait();
  EXPECT_FALSE(monitor.look().busy_share);
  root_.write("proc/stat", "cpu  1 1 1 1 1 1 1 1\n");
  wait();
  EXPECT_FALSE(monitor.look().busy_share);
}

TEST_F(MonitorOf, a_pid_that_was_given_to_a_new_process_starts_anew) {
  Monitor monitor({nullptr, ""}, root_.path());
  monitor.look();
  wait();
  root_.write("proc/10/stat", "10 (new) R 1 1 1 0 -1 0 0 0 0 0 1 0 0 0 20 0 1 0 9000 0 1 0\n");
  const Look look = monitor.look();
  ASSERT_EQ(look.runs.size(), 1u);
  EXPECT_FALSE(look.runs[0].busy_cores);
}

TEST_F(MonitorOf, a_run_is_joined_with_its_memory_on_devices) {
  Monitor monitor({std::make_unique<OneDevice>(), ""}, root_.path());
  const Look look = monitor.look();
  EXPECT_EQ(look.driver, "1.2");
  ASSERT_EQ(look.runs[0].device_bytes.size(), 1u);
  EXPECT_EQ(look.runs[0].device_bytes[0].first, 3);
  EXPECT_EQ(look.runs[0].device_bytes[0].second, 4096);
  // 99 is not in our /proc.
  EXPECT_EQ(look.process_names, (std::map<int64_t, std::string>{{10, "tanren"}}));
}

}  // namespace
}  // namespace tanren
