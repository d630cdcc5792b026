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
#include <string>
#include <string_view>
#include <vector>

namespace tanren::cli {

namespace {

constexpr int kPlanRefused = 2;  // exit code of bad input

void write_all(int pipe, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(pipe, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// In the fork: writes to its standard output the steps, or why there is no plan. What a user's
// model or data prints goes to standard error.
int tell_steps(const SweepPlace& place, const Registry& registry) noexcept {
  const int answer = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  try {
    RunConfig config = place.config;
    config.sweep = {};
    write_all(answer, std::to_string(plan_only(config, registry).length.total_steps));
    return 0;
  } catch (const InputError& error) {
    write_all(answer, error.what());
    return kPlanRefused;
  } catch (...) {
    write_all(answer, failure_of_current().reason);
    return 1;
  }
}

// Adds what is in the pipe. False at its end.
bool read_some(int pipe, std::string& text) {
  char buffer[4096];
  const ssize_t got = ::read(pipe, buffer, sizeof buffer);
  if (got > 0) text.append(buffer, static_cast<size_t>(got));
  return got > 0 || (got < 0 && errno == EINTR);
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
                   .in_place = [&](const auto&) { return tell_steps(place, registry); }});
  ::close(ends[1]);
  std::optional<ChildEnd> end;
  bool is_stopped = false, has_more = true;
  std::string text;
  while (!end && !is_stopped) {
    pollfd heard[] = {{processes.signals(), POLLIN, 0}, {has_more ? ends[0] : -1, POLLIN, 0}};
    ::poll(heard, 2, -1);
    if (heard[1].revents != 0) has_more = read_some(ends[0], text);
    while (const auto signal = processes.next_signal()) {
      // NOLINTNEXTLINE(misc-redundant-expression)
      is_stopped = is_stopped || (signal != SIGCHLD && signal != SIGTSTP);
    }
    for (const ChildEnd& one : processes.collect()) end = one;
  }
  while (!is_stopped && has_more) has_more = read_some(ends[0], text);
  ::close(ends[0]);
  if (is_stopped) return std::nullopt;
  if (end->signal != 0) {
    throw RunError("[sweep] the plan of a trial was killed by " + signal_text(end->signal));
  }
  if (end->code == kPlanRefused) throw InputError(text);
  if (text.empty()) {  // code of the user's model ended the process
    throw RunError("[sweep] the process that plans a trial ended with code " +
                   std::to_string(end->code) + " before the plan was made");
  }
  if (end->code != 0) throw RunError(text);
  return std::stoll(text);
}

}  // namespace tanren::cli
