#include "tanren/metrics/contention.h"

#include "tanren/base/testing.h"
#include "tanren/metrics/console_sink.h"

#include <gtest/gtest.h>

#include <sstream>
#include <thread>

namespace tanren {
namespace {

using std::chrono::milliseconds;

// A fake /proc that reports what the test sets.
class Contention : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder_.path() / "pressure");
    std::filesystem::create_directory(folder_.path() / "thread-self");
  }
  // Percent of pressure, and seconds that the thread has waited so far.
  void kernel_says(const std::string& pressure, double waited) const {
    folder_.file("pressure/cpu", "some avg10=" + pressure + " avg60=0.00 avg300=0.00 total=1\n");
    folder_.file("thread-self/schedstat",
                 "1000 " + std::to_string(static_cast<int64_t>(waited * 1e9)) + " 3\n");
  }

  testing::TemporaryFolder folder_;
  ContentionWatch::Clock::time_point start_;
};

TEST_F(Contention, a_kernel_that_does_not_tell_is_asked_once_and_never_again) {
  ContentionWatch watch(folder_.path());
  EXPECT_FALSE(watch.look(start_));
  kernel_says("90.00", 0);
  EXPECT_FALSE(watch.look(start_ + milliseconds(2000)));
  kernel_says("90.00", 50);
  EXPECT_FALSE(watch.look(start_ + milliseconds(4000)));
}

TEST_F(Contention, is_told_once_with_both_shares) {
  kernel_says("63.10", 1);
  ContentionWatch watch(folder_.path());
  EXPECT_FALSE(watch.look(start_)) << "what was waited before the run does not count";
  kernel_says("63.10", 2);
  EXPECT_FALSE(watch.look(start_ + milliseconds(1999))) << "looks every two seconds";
  EXPECT_EQ(
      watch.look(start_ + milliseconds(2500)).value_or(""),
      "[run] the cores are contended: in the last 10 s some process waited for one 63 % of the "
      "time (/proc/pressure/cpu), and this run's steps did 40 % of theirs; they take longer "
      "than alone");
  kernel_says("99.00", 4);
  EXPECT_FALSE(watch.look(start_ + milliseconds(5000)));
}

TEST_F(Contention, pressure_that_this_run_does_not_feel_or_makes_alone_is_not_told) {
  kernel_says("99.00", 0);
  ContentionWatch watch(folder_.path());
  watch.look(start_);
  kernel_says("99.00", 0.1);
  EXPECT_FALSE(watch.look(start_ + milliseconds(2000))) << "waited 5 % of the time";
  kernel_says("19.00", 2.1);
  EXPECT_FALSE(watch.look(start_ + milliseconds(4000))) << "of its own threads";
  kernel_says("20.00", 2.4);
  EXPECT_TRUE(watch.look(start_ + milliseconds(6000)));
}

TEST_F(Contention, the_console_tells_it_where_it_is_given_a_kernel_to_ask) {
  StepReport report;
  report.step = 1;
  report.objectives.resize(1);
  std::ostringstream told, untold;
  const auto sink = make_console_sink(told, {.console_every = 100, .proc = folder_.path()});
  const auto deaf = make_console_sink(untold, {.console_every = 100});
  kernel_says("99.00", 0);
  for (const auto& one : {sink.get(), deaf.get()}) one->step(report);
  kernel_says("99.00", 1000);
  std::this_thread::sleep_for(milliseconds(2010));
  for (const auto& one : {sink.get(), deaf.get()}) one->step(report);
  TANREN_EXPECT_CONTAINS(told.str(), "[run] the cores are contended: ");
  TANREN_EXPECT_CONTAINS(told.str(), "did 100 % of theirs");
  EXPECT_EQ(untold.str().find("contended"), std::string::npos);
}

}  // namespace
}  // namespace tanren
