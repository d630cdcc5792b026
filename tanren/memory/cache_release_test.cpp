#include "tanren/memory/cache_release.h"

#include "tanren/memory/cpu_allocator.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

namespace tanren {
namespace {

using std::chrono::milliseconds;

class CacheReleaseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    install_cpu_allocator();
    trim_cpu_memory();
  }
  void TearDown() override { uninstall_cpu_allocator(); }
  // A tensor is made and freed: only its pages stay.
  static int64_t cached_after_use() {
    at::empty({int64_t{8} << 20}, at::kByte).fill_(1);
    return cpu_memory_stats().cached_bytes;
  }
  MemoryRoom room_{1000, 1000};
  int looks_ = 0;
  CacheRelease release(ReleaseCache when) {
    return {when, at::kCPU, [this] {
              ++looks_;
              return room_;
            }};
  }
  CacheRelease::Clock::time_point now_ = CacheRelease::Clock::now();
};

TEST_F(CacheReleaseTest, never_is_never_and_does_not_look) {
  auto never = release(ReleaseCache::never);
  room_.available_bytes = 0;
  const int64_t cached = cached_after_use();
  EXPECT_FALSE(never.after_step(now_));
  EXPECT_EQ(cpu_memory_stats().cached_bytes, cached);
  EXPECT_EQ(looks_, 0);
}

TEST_F(CacheReleaseTest, step_is_every_step) {
  auto step = release(ReleaseCache::step);
  for (int i = 0; i < 2; ++i) {
    cached_after_use();
    EXPECT_TRUE(step.after_step(now_));
    EXPECT_EQ(cpu_memory_stats().cached_bytes, 0);
  }
  EXPECT_EQ(looks_, 0);
}

TEST_F(CacheReleaseTest, pressure_waits_until_little_is_left_and_looks_once_a_second) {
  auto pressure = release(ReleaseCache::pressure);
  const int64_t cached = cached_after_use();
  EXPECT_FALSE(pressure.after_step(now_));
  room_.available_bytes = 49;
  EXPECT_FALSE(pressure.after_step(now_ + milliseconds(999)));
  EXPECT_EQ(cpu_memory_stats().cached_bytes, cached);
  EXPECT_TRUE(pressure.after_step(now_ + milliseconds(1000)));
  EXPECT_EQ(cpu_memory_stats().cached_bytes, 0);
  EXPECT_EQ(looks_, 2);
}

TEST_F(CacheReleaseTest, a_machine_that_tells_nothing_is_not_short) {
  auto pressure = release(ReleaseCache::pressure);
  room_ = {};
  EXPECT_FALSE(pressure.after_step(now_));
  EXPECT_TRUE(CacheRelease(ReleaseCache::step, at::kCPU).after_step());
}

TEST(MemoryRoom, is_the_cgroups_where_that_leaves_less) {
  MachineMemory memory;
  memory.total_bytes = 1000;
  memory.available_bytes = 700;
  EXPECT_EQ(room_of(memory).available_bytes, 700);
  memory.cgroup_used_bytes = 290;
  EXPECT_EQ(room_of(memory).total_bytes, 1000);
  memory.cgroup_limit_bytes = 300;
  EXPECT_EQ(room_of(memory).available_bytes, 10);
  EXPECT_EQ(room_of(memory).total_bytes, 300);
  memory.cgroup_cache_bytes = 40;  // the kernel gives it up first
  EXPECT_EQ(room_of(memory).available_bytes, 50);
  memory.cgroup_used_bytes = 400;  // of a limit that was lowered
  memory.cgroup_cache_bytes = 0;
  EXPECT_EQ(room_of(memory).available_bytes, 0);
}

}  // namespace
}  // namespace tanren
