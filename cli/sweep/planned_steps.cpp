#include "cli/sweep/planned_steps.h"

#include "tanren/base/error.h"
#include "tanren/run/failure.h"
#include "tanren/run/run.h"
#include "cli/launch/child_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

namespace tanren::cli {

namespace {

constexpr int kPlanRefused = 2;  // exit code of bad input

// In the fork: prints the steps, or why there is no plan.
int print_steps(const SweepPlace& place, const Registry& registry) noexcept {
  try {
    RunConfig config = place.config;
    config.sweep = {};
    std::cout << plan_only(config, registry).length.total_steps << std::flush;
    return 0;
  } catch (const InputError& error) {
    std::cout << error.what() << std::flush;
    return kPlanRefused;
  } catch (...) {
    std::cout << failure_of_current().reason << std::flush;
    return 1;
  }
}

std::string text_in(int pipe) {
  std::string text;
  char buffer[4096];
  for (ssize_t got = 1; got > 0;) {
    got = ::read(pipe, buffer, sizeof buffer);
    if (got > 0) text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

}  // namespace

std::optional<int64_t> planned_steps_of(const SweepPlace& place, const Registry& registry) {
  ChildProcesses processes({.name = "sweep", .advice = "end other processes"});
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) < 0) {
    throw RunError("[sweep] no pipe can be made: " + std::string(std::strerror(errno)));
  }
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  processes.start({.program = "plan",
                   .arguments = {"plan"},
                   .environment = environment,
                   .out = ends[1],
                   .in_place = [&](const auto&) { return print_steps(place, registry); }});
  ::close(ends[1]);
  std::optional<ChildEnd> end;
  bool is_stopped = false;
  while (!end && !is_stopped) {
    pollfd heard{processes.signals(), POLLIN, 0};
    ::poll(&heard, 1, -1);
    while (const auto signal = processes.next_signal()) {
      is_stopped = is_stopped || (signal != SIGCHLD && signal != SIGTSTP);
    }
    for (const ChildEnd& one : processes.collect()) end = one;
  }
  const std::string text = is_stopped ? "" : text_in(ends[0]);
  ::close(ends[0]);
  if (is_stopped) return std::nullopt;
  if (end->signal != 0) {
    throw RunError("[sweep] the plan of a trial was killed by " + signal_text(end->signal));
  }
  if (end->code == kPlanRefused) throw InputError(text);
  if (end->code != 0) throw RunError(text);
  return std::stoll(text);
}

}  // namespace tanren::cli
