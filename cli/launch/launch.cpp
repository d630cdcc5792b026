#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/cli.h"
#include "tanren/comm/awaited.h"
#include "tanren/plan/probe_machine.h"
#include "cli/launch/child_processes.h"
#include "cli/launch/launch_options.h"
#include "cli/launch/rank_output.h"
#include "cli/stop_signals.h"
#include "cli/verb_list.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

namespace tanren::cli {

namespace {

using Clock = RankOutput::Clock;

// Time between the first failure and SIGTERM, in which the other ranks notice the failure and end
// with their own messages.
constexpr std::chrono::seconds kGrace{2};
// Time between SIGTERM and SIGKILL.
constexpr std::chrono::seconds kTermGrace{3};

constexpr int kRefused = 2;    // exit code of bad input
constexpr int kStopped = 130;  // exit code of a run that a signal stopped and that can resume

// The ranks of this machine from start to end: their output, their signals, and which failed first.
class LaunchedRanks {
 public:
  LaunchedRanks(const LaunchOptions& options, const Registry& registry)
      : options_(options), registry_(registry) {}

  void start();
  // Returns the exit code once no process is left.
  int watch();

 private:
  struct Failure {
    ChildEnd end;
    std::string last_line;
  };
  // The steps taken if the ranks do not end on their own.
  enum class Stage { running, grace, asked, killed };

  void handle(int signal);
  void pause();
  void ended(const ChildEnd& end);
  bool ended_as_told(const ChildEnd& end) const;
  void next_stage(Clock::time_point now);
  void ask_to_end(Clock::time_point now);
  void kill_all();
  void stop_folding();
  bool say_one_thing(const ChildEnd& one, const ChildEnd& other) const;
  bool all_said_one_thing() const;
  const Failure& cause() const;
  int report();

  LaunchOptions options_;
  const Registry& registry_;
  RankOutput output_;
  ChildProcesses processes_{{.name = "launch", .advice = "start fewer ranks"}};
  std::vector<pid_t> pids_;
  Stage stage_ = Stage::running;
  Clock::time_point until_ = Clock::time_point::max();  // when the stage ends
  int forwarded_ = 0;                                   // signal passed on to all ranks; 0: none
  Interrupts interrupts_;
  std::vector<int> sent_;          // signals sent to the ranks from here
  std::vector<Failure> failures_;  // in the order of their ends
  bool folding_ = true;            // the failed ranks printed the same so far: holds lines
  bool resumable_ = false;
  size_t num_told_ = 0;  // ranks ended by a signal from here
};

// A rank that runs a verb runs this same program. libtorch, whose loading takes most of a start, is
// then already loaded.
auto as_this_program(const Registry& registry) {
  return [&registry](const std::vector<std::string>& words) {
    return main(static_cast<int>(words.size()), pointers_to(words).data(), registry);
  };
}

void LaunchedRanks::start() {
  for (int local = 0; local < options_.ranks; ++local) {
    const auto ends = output_.open(options_.rank(local));
    ChildStart start{.program = options_.program,
                     .arguments = options_.command,
                     .environment = rank_environment(options_, local),
                     .out = ends.out,
                     .err = ends.err};
    if (options_.is_verb) start.in_place = as_this_program(registry_);
    pids_.push_back(processes_.start(start));
    for (const int end : {ends.out, ends.err}) {
      if (end >= 0) ::close(end);
    }
  }
  processes_.start_guard();
}

int LaunchedRanks::watch() {
  while (processes_.any_left()) {
    output_.wait(processes_.signals(), until_);
    while (const auto signal = processes_.next_signal()) handle(*signal);
    for (const ChildEnd& end : processes_.collect()) ended(end);
    next_stage(Clock::now());
  }
  output_.take_rest();
  const int code = report();
  output_.write_rest(processes_.signals());
  if (output_.is_lost()) std::cout.setstate(std::ios::badbit);  // main reports it and ends with 1
  return code;
}

void LaunchedRanks::handle(int signal) {
  if (signal == SIGCHLD) return;
  if (signal == SIGTSTP) {
    pause();
    return;
  }
  if (interrupts_.is_second(signal)) {
    output_.say("[launch] a second interrupt: the ranks are killed\n");
    kill_all();
  }
  if (forwarded_ != 0) return;
  // More programs handle SIGTERM; a closed terminal also asks them to stop.
  forwarded_ = signal == SIGHUP ? SIGTERM : signal;
  const std::string hung_up = signal == SIGHUP ? signal_text(signal) + " came, and " : "";
  output_.say("[launch] " + hung_up + signal_text(forwarded_) +
              " went to all ranks, to stop them; " +
              (signal == SIGINT ? "a second one kills them\n" : "Ctrl-C twice kills them\n"));
  sent_.push_back(forwarded_);
  processes_.send(forwarded_);
}

// Ctrl-Z and fg reach only the launcher, so it passes both on to the ranks.
void LaunchedRanks::pause() {
  processes_.send(SIGSTOP);
  ::raise(SIGSTOP);
  processes_.send(SIGCONT);
}

// Whether a signal from here ended the rank, or the rank has the exit code by which a shell reports
// that signal (128 + signal).
bool LaunchedRanks::ended_as_told(const ChildEnd& end) const {
  return std::any_of(sent_.begin(), sent_.end(), [&](int signal) {
    return end.signal == signal || (end.code == 128 + signal && end.code != kStopped);
  });
}

void LaunchedRanks::ended(const ChildEnd& end) {
  output_.child_ended(end.child);
  const bool failed = end.signal != 0 || (end.code != 0 && end.code != kStopped);
  if (!failed || ended_as_told(end)) {
    if (end.code == kStopped) resumable_ = true;
    if (failed) ++num_told_;
    output_.release_held(end.child);
    if (!failures_.empty()) stop_folding();
    return;
  }
  failures_.push_back({end, output_.last_error_line(end.child)});
  if (!say_one_thing(end, failures_.front().end)) stop_folding();
  if (!folding_) output_.release_held();
  if (stage_ == Stage::running) {
    stage_ = Stage::grace;
    until_ = Clock::now() + kGrace;
  }
}

void LaunchedRanks::next_stage(Clock::time_point now) {
  const bool leftovers = !processes_.any_running() && forwarded_ == 0;
  if (stage_ == Stage::running && leftovers) {
    ask_to_end(now);
  } else if (stage_ == Stage::grace && (leftovers || now >= until_)) {
    if (now >= until_) stop_folding();
    ask_to_end(now);
  } else if (stage_ == Stage::asked && now >= until_) {
    kill_all();
  }
}

// Sends no second signal to ranks that were already asked to end, because programs may end at once
// on a second one.
void LaunchedRanks::ask_to_end(Clock::time_point now) {
  if (forwarded_ == 0) {
    sent_.push_back(SIGTERM);
    processes_.send(SIGTERM);
  }
  stage_ = Stage::asked;
  until_ = now + kTermGrace;
}

void LaunchedRanks::kill_all() {
  sent_.push_back(SIGKILL);
  processes_.send(SIGKILL);
  stage_ = Stage::killed;
  until_ = Clock::time_point::max();
}

void LaunchedRanks::stop_folding() {
  folding_ = false;
  output_.release_held();
}

// The text of a rank. A single [comm] line loses its part on what that rank waited for, because
// this part differs between ranks.
std::string common_part(const std::string& said) {
  if (said.rfind("[comm] ", 0) != 0 || said.find('\n') + 1 != said.size()) return said;
  return without_waits(said.substr(0, said.size() - 1)) + "\n";
}

// Whether `said` is the message of a rank that received `cause` from another rank: "[comm] rank 0:
// <cause>".
bool is_echo(const std::string& said, const std::string& cause) {
  const std::string told = common_part(said);
  return told.rfind("[comm] rank ", 0) == 0 && told.size() > cause.size() &&
         told.compare(told.size() - cause.size(), cause.size(), cause) == 0 &&
         std::count(told.begin(), told.end(), '\n') == 1;
}

// Whether both printed the same, or one refused bad input and the other printed an echo of it.
bool LaunchedRanks::say_one_thing(const ChildEnd& one, const ChildEnd& other) const {
  if (one.signal != 0 || other.signal != 0) return false;
  const std::string said = output_.held(one.child), other_said = output_.held(other.child);
  if (said.empty() || other_said.empty()) return said == other_said && one.code == other.code;
  if (one.code == other.code) return common_part(said) == common_part(other_said);
  return (one.code == kRefused && is_echo(other_said, said)) ||
         (other.code == kRefused && is_echo(said, other_said));
}

// Whether all ranks printed the same. Their text is then printed once, without labels, as by one
// process. A single rank of several machines keeps its label.
bool LaunchedRanks::all_said_one_thing() const {
  if (!folding_ || failures_.size() != pids_.size()) return false;
  if (pids_.size() == 1 && options_.nodes > 1) return false;
  const std::string said = output_.held(failures_.front().end.child);
  if (said.empty()) return false;
  // Texts that differ in what each rank waited for count as the same only if a rank refused its
  // input: that rank's text, the cause, is then the one printed.
  return std::any_of(failures_.begin(), failures_.end(),
                     [](const Failure& failure) { return failure.end.code == kRefused; }) ||
         std::all_of(failures_.begin(), failures_.end(), [&](const Failure& failure) {
           return output_.held(failure.end.child) == said;
         });
}

// The failure to report. Ranks that fail because they lost another rank print a line that begins
// with "[comm]". They may end before the rank that they lost. So the cause is the first failure by
// a signal or with a last error line of another kind. If there is none, the lost rank is on another
// machine, or never connected, and the first failure is reported.
const LaunchedRanks::Failure& LaunchedRanks::cause() const {
  const auto found = std::find_if(failures_.begin(), failures_.end(), [](const Failure& failure) {
    return failure.end.signal != 0 || failure.last_line.rfind("[comm]", 0) != 0;
  });
  return found == failures_.end() ? failures_.front() : *found;
}

int LaunchedRanks::report() {
  if (all_said_one_thing()) {
    const auto refused = std::find_if(failures_.begin(), failures_.end(), [](const auto& failure) {
      return failure.end.code == kRefused;
    });
    const ChildEnd end = (refused == failures_.end() ? failures_.front() : *refused).end;
    const std::string said = output_.held(end.child);
    output_.drop_held();
    output_.say(said);
    return end.code;
  }
  output_.release_held();
  if (!failures_.empty()) {
    const auto& [end, last_line] = cause();
    std::string what = last_line.empty() ? fmt::format("exit code {}", end.code) : last_line;
    if (end.signal != 0) {
      what = "killed by " + signal_text(end.signal);
      // A rank that aborts prints the reason before.
      if (end.signal == SIGABRT && !last_line.empty()) what += ": " + last_line;
    }
    output_.say(fmt::format("[launch] rank {} (pid {}) failed first: {}{}",
                            options_.rank(static_cast<int>(end.child)), pids_[end.child],
                            one_line(what),
                            options_.world_size() > 1 ? "; the others were ended\n" : "\n"));
    return end.signal != 0 ? 1 : end.code;
  }
  if (num_told_ > 0) {
    output_.say(
        fmt::format("[launch] stopped by {}, before {} of {} ranks said that the run can resume\n",
                    signal_text(sent_.back()), num_told_, pids_.size()));
    return 1;
  }
  return resumable_ ? kStopped : 0;
}

}  // namespace

int launch(const Arguments& arguments, const Registry& registry) {
  const LaunchOptions options = launch_options(arguments);
  if (!arguments.launch.verb.empty()) {
    // Prints help, or what the verb refuses, once and before anything starts.
    Arguments of_verb;
    of_verb.program = arguments.program;
    if (const auto code = read_arguments(arguments.launch.verb, of_verb)) return *code;
  }
  const int cores = probe_machine().cores;
  if (options.ranks > cores) {
    std::cerr << "[launch] " << options.ranks << " ranks share " << cores
              << (cores == 1 ? " core" : " cores")
              << " of this machine; as many as cores are faster\n";
  }
  LaunchedRanks ranks(options, registry);
  ranks.start();
  return ranks.watch();
}

}  // namespace tanren::cli
