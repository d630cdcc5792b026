#include "tanren/run/short_waits.h"

#include "tanren/base/file.h"
#include "tanren/base/testing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>

#include <unistd.h>

extern "C" void GOMP_parallel(void (*work)(void*), void* data, unsigned threads, unsigned flags);
extern "C" int omp_get_thread_num();

namespace tanren {
namespace {

using Seconds = WaitRule::Duration;

// Seconds until the rule changes its decision, with this share of the time spent waiting; looks
// every 0.05 s.
double until_change(WaitRule& rule, bool from, double share) {
  constexpr double kLook = 0.05;
  double seconds = 0;
  while (seconds < 1000) {
    seconds += kLook;
    if (rule.look(Seconds(kLook), Seconds(share * kLook)) != from) break;
  }
  return seconds;
}

TEST(WaitRule, a_thread_that_has_its_core_may_spin) {
  WaitRule rule;
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(rule.look(Seconds(0.05), Seconds(0.009)));
}

TEST(WaitRule, holds_longer_each_time_that_the_cores_are_still_wanted) {
  WaitRule rule;
  for (const double hold : {1, 2, 4, 8, 16, 32, 64, 64}) {
    EXPECT_NEAR(until_change(rule, false, 0.6), 0.1, 0.001) << "at the second look";
    EXPECT_NEAR(until_change(rule, true, 0.0), hold, 0.06) << "whatever is waited meanwhile";
  }
}

TEST(WaitRule, after_as_long_a_peace_it_begins_with_the_shortest_hold_again) {
  WaitRule rule;
  for (int i = 0; i < 2; ++i) {
    until_change(rule, false, 0.6);
    until_change(rule, true, 0.6);
  }
  for (int i = 0; i < 3 * 20; ++i) EXPECT_FALSE(rule.look(Seconds(0.05), Seconds(0)));
  until_change(rule, false, 0.6);
  EXPECT_NEAR(until_change(rule, true, 0.6), 1, 0.06);
}

TEST(WaitRule, something_short_beside_the_run_is_no_reason) {
  WaitRule rule;
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(rule.look(Seconds(0.05), Seconds(0.03)));
    for (int j = 0; j < 3; ++j) EXPECT_FALSE(rule.look(Seconds(0.05), Seconds(0.003)));
  }
  EXPECT_TRUE(rule.look(Seconds(0.25), Seconds(0.05))) << "a late look sees a fifth as well";
}

TEST(ShortWaits, the_watcher_hears_of_a_wait_and_ends_at_once) {
  std::atomic<int> looks = 0, changes = 0;
  std::atomic<bool> brief = false;
  {
    const ShortWaits waits([&]() -> std::optional<double> { return 100.0 * ++looks; },
                           [&](bool now) {
                             if (changes == 0) brief = now;
                             ++changes;  // last: the test waits for it
                           });
    while (changes == 0) std::this_thread::yield();
  }
  EXPECT_TRUE(brief);
  const int after = looks;
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
  EXPECT_EQ(looks, after);
  EXPECT_EQ(changes, 1);
}

TEST(ShortWaits, where_the_kernel_tells_nothing_nobody_watches) {
  std::atomic<int> looks = 0;
  const ShortWaits waits(
      [&]() -> std::optional<double> {
        ++looks;
        return std::nullopt;
      },
      [](bool) { FAIL(); });
  while (looks == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
  EXPECT_EQ(looks, 1);
}

// A thread that cannot be made is no reason to end the run.
TEST(ShortWaits, where_no_thread_can_be_added_the_watcher_gives_up_and_the_run_goes_on) {
  std::atomic<int> looks = 0, calls = 0;
  {
    const ShortWaits waits(
        [&]() -> std::optional<double> { return 100.0 * ++looks; },
        [&](bool) {
          ++calls;
          throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
        });
    while (calls == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
  }
  EXPECT_EQ(calls, 1);
}

TEST(ShortWaits, threads_are_added_only_well_below_the_limit_of_the_cgroup) {
  const testing::TemporaryFolder root;
  const auto file = [&](const std::filesystem::path& name, const std::string& text) {
    std::filesystem::create_directories((root.path() / name).parent_path());
    write_file(root.path() / name, text);
  };
  file("proc/self/cgroup", "0::/job\n");
  file("proc/loadavg", "0.20 0.18 0.12 1/80 11206\n");
  file("sys/fs/cgroup/job/pids.current", "30\n");
  file("sys/fs/cgroup/job/pids.max", "max\n");
  EXPECT_TRUE(may_add_threads(7, root.path()));
  file("sys/fs/cgroup/job/pids.max", "100\n");
  EXPECT_TRUE(may_add_threads(6, root.path()));
  EXPECT_FALSE(may_add_threads(7, root.path()));
}

double own_cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// CPU seconds that this thread spends while it waits for the other thread of its team, which
// sleeps.
double cpu_seconds_of_a_wait() {
  const auto work = [](void*) {
    if (omp_get_thread_num() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  };
  GOMP_parallel([](void*) {}, nullptr, 2, 0);  // starts the thread
  const double before = own_cpu_seconds();
  GOMP_parallel(work, nullptr, 2, 0);
  return own_cpu_seconds() - before;
}

TEST(SleepingTeam, makes_waits_brief_as_long_as_it_lives) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) {  // libgomp has read it: runs again without
    const std::string again = "env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT /proc/" +
                              std::to_string(::getpid()) +
                              "/exe --gtest_filter=SleepingTeam.* 2>&1";
    EXPECT_EQ(std::system(again.c_str()), 0);
    return;
  }
  const double before = cpu_seconds_of_a_wait();
  double during = 0;
  {
    const SleepingTeam team;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the team starts meanwhile
    during = cpu_seconds_of_a_wait();
  }
  const double after = cpu_seconds_of_a_wait();
  EXPECT_LT(during, before / 4);
  EXPECT_LT(during, after / 4);
}

}  // namespace
}  // namespace tanren
