// The processes that a verb starts (cli/launch): forks of this program that continue with a
// function.
#include "cli/launch/child_processes.h"
#include "tanren/base/error.h"
#include "tanren/base/testing.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tanren::cli {
namespace {

using Work = std::function<int(const std::vector<std::string>&)>;

ChildStart going_on_with(Work work) {
  return {.program = "/bin/false",
          .arguments = {"child"},
          .environment = {"CHILD=1"},
          .err = STDERR_FILENO,
          .in_place = std::move(work)};
}

int wait_for_a_signal(const std::vector<std::string>&) {
  while (true) ::pause();
}

// The ends of `count` children, in the order of their starts.
std::vector<ChildEnd> ends_of(ChildProcesses& processes, size_t count) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::vector<ChildEnd> ends;
  while (ends.size() < count && std::chrono::steady_clock::now() < until) {
    for (const ChildEnd& end : processes.collect()) ends.push_back(end);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::sort(ends.begin(), ends.end(),
            [](const ChildEnd& one, const ChildEnd& other) { return one.child < other.child; });
  return ends;
}

// Whether the pipe gives a byte within 30 s; false at its end.
bool has_byte(int pipe) {
  pollfd asked{pipe, POLLIN, 0};
  char byte = 0;
  EXPECT_EQ(::poll(&asked, 1, 30'000), 1) << "nothing came, and the pipe is still open";
  return asked.revents != 0 && ::read(pipe, &byte, 1) == 1;
}

TEST(ChildProcesses, say_who_started_them_when_a_program_cannot_be_started) {
  for (const std::string name : {"launch", "sweep"}) {
    ChildProcesses processes({.name = name, .advice = "start fewer"});
    const ChildStart start{.program = "/none/such", .arguments = {"such"}, .err = STDERR_FILENO};
    try {
      processes.start(start);
      FAIL() << "no error";
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.what(), "[" + name +
                                  "] /none/such cannot be started: No such file or directory; "
                                  "name a program that runs by itself");
    }
  }
}

int num_descriptors() {
  int count = 0;
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) >= 0) ++count;
  }
  return count;
}

TEST(ChildProcesses, that_cannot_be_started_leave_nothing_and_do_not_count) {
  ChildProcesses processes({.name = "sweep", .advice = "start fewer"});
  const int before = num_descriptors();
  const ChildStart none{.program = "/none/such", .arguments = {"such"}, .err = STDERR_FILENO};
  EXPECT_THROW(processes.start(none), ConfigError);
  EXPECT_FALSE(processes.any_left());
  EXPECT_FALSE(processes.any_running());
  {
    // One descriptor is free, and the pipe for errors needs two more.
    const int next = ::dup(STDERR_FILENO);
    ::close(next);
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    rlimit narrow = limit;
    narrow.rlim_cur = static_cast<rlim_t>(next) + 1;
    ::setrlimit(RLIMIT_NOFILE, &narrow);
    EXPECT_THROW(processes.start(none), RunError);
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  EXPECT_EQ(num_descriptors(), before);
  processes.start(going_on_with([](const auto&) { return 3; }));
  const auto ends = ends_of(processes, 1);
  ASSERT_EQ(ends.size(), 1);
  EXPECT_EQ(ends[0].child, 0);
  EXPECT_EQ(ends[0].code, 3);
}

TEST(ChildProcesses, go_on_with_a_function_as_forks_of_this_process) {
  ChildProcesses processes({.name = "sweep", .advice = ""});
  int own = 7;  // the children change their copies
  for (int i = 0; i < 2; ++i) {
    processes.start(going_on_with([&own, i](const auto&) {
      own += i;
      const char* set = std::getenv("CHILD");
      return set != nullptr && std::getenv("PATH") == nullptr ? own : 1;
    }));
  }
  const auto ends = ends_of(processes, 2);
  ASSERT_EQ(ends.size(), 2);
  EXPECT_EQ(ends[0].code, 7);
  EXPECT_EQ(ends[1].code, 8);
  EXPECT_EQ(own, 7);
}

TEST(ChildProcesses, get_a_signal_one_by_one) {
  ChildProcesses processes({.name = "sweep", .advice = ""});
  for (int i = 0; i < 3; ++i) processes.start(going_on_with(wait_for_a_signal));
  processes.send(1, SIGTERM);
  auto ends = ends_of(processes, 1);
  ASSERT_EQ(ends.size(), 1);
  EXPECT_EQ(ends[0].child, 1);
  EXPECT_EQ(ends[0].signal, SIGTERM);
  processes.send(1, SIGKILL);  // no process receives it
  EXPECT_TRUE(processes.any_running());
  processes.send(SIGKILL);
  ends = ends_of(processes, 2);
  ASSERT_EQ(ends.size(), 2);
  EXPECT_EQ(ends[0].child, 0);
  EXPECT_EQ(ends[0].signal, SIGKILL);
  EXPECT_EQ(ends[1].child, 2);
}

TEST(ChildProcesses, end_with_their_processor_time_and_peak_memory) {
  constexpr size_t kBytes = size_t{300} << 20;
  ChildProcesses processes({.name = "sweep", .advice = ""});
  processes.start(going_on_with([](const auto&) { return 0; }));
  processes.start(going_on_with([](const auto&) {
    while (std::clock() < CLOCKS_PER_SEC / 2) {  // CPU time of this process alone
    }
    return 0;
  }));
  processes.start(going_on_with([](const auto&) {
    const std::vector<char> touched(kBytes, '1');
    return touched[kBytes / 2] == '1' ? 0 : 1;
  }));
  const auto ends = ends_of(processes, 3);
  ASSERT_EQ(ends.size(), 3);
  for (const ChildEnd& end : ends) EXPECT_EQ(end.code, 0);
  EXPECT_GE(ends[1].cpu_seconds, 0.45);
  EXPECT_LT(ends[0].cpu_seconds, ends[1].cpu_seconds);
  EXPECT_GT(ends[0].peak_bytes, 0);
  EXPECT_GE(ends[2].peak_bytes, static_cast<int64_t>(kBytes));
  EXPECT_LT(ends[0].peak_bytes + static_cast<int64_t>(kBytes / 2), ends[2].peak_bytes);
}

// The kernel ends the child itself; only the guard knows what the child has started.
TEST(ChildProcesses, that_begin_after_the_guard_end_with_all_they_started_when_their_owner_dies) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t owner = ::fork();
  if (owner == 0) {
    ::close(ends[0]);
    ChildProcesses processes({.name = "sweep", .advice = ""});
    processes.start_guard();
    processes.start(going_on_with([&](const auto& words) {
      if (::fork() == 0) {
        ::alarm(120);  // its end if the guard fails
        [[maybe_unused]] const ssize_t told = ::write(ends[1], "x", 1);
      } else {
        ::close(ends[1]);
      }
      return wait_for_a_signal(words);
    }));
    [[maybe_unused]] const ssize_t told = ::write(ends[1], "x", 1);
    ::close(ends[1]);
    wait_for_a_signal({});
  }
  ::close(ends[1]);
  EXPECT_TRUE(has_byte(ends[0]));
  EXPECT_TRUE(has_byte(ends[0]));
  ::kill(owner, SIGKILL);
  EXPECT_EQ(::waitpid(owner, nullptr, 0), owner);
  EXPECT_FALSE(has_byte(ends[0]));  // end of file: no process has the other end any more
  ::close(ends[0]);
}

}  // namespace
}  // namespace tanren::cli
