#include "cli/sweep/sweep_runner.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/plan/probe_machine.h"
#include "tanren/run/run_folder.h"
#include "tanren/sweep/sweep_length.h"
#include "cli/sweep/silence.h"
#include "cli/sweep/trial_end.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace tanren::cli {

namespace fs = std::filesystem;

namespace {

// Time between SIGTERM and SIGKILL for an unresponsive trial.
constexpr std::chrono::seconds kMostGrace{10};

// Waits for the lock of the folder, because a killed process may hold it a moment longer.
void await_lock(const fs::path& folder) {
  constexpr int kTries = 500;
  const int lock = ::open((folder / "lock").c_str(), O_RDWR | O_CLOEXEC);
  if (lock < 0) return;
  for (int i = 0; i < kTries && ::flock(lock, LOCK_EX | LOCK_NB) != 0; ++i) {
    if (errno != EWOULDBLOCK && errno != EINTR) break;
    ::usleep(20'000);
  }
  ::close(lock);
}

// Creates the folder and opens its output.txt for appending.
int open_output(const fs::path& folder) {
  const fs::path file = folder / kRunOutput;
  std::error_code error;
  fs::create_directories(folder, error);
  const int output =
      error ? -1 : ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (output >= 0) return output;
  throw RunError(fmt::format(
      "[sweep] cannot write {} ({}); free space or give it rights, and start the same again: it "
      "goes on",
      file.string(), error ? error.message() : std::strerror(errno)));
}

// memory.limit of each of `sharers`; empty: as the config has it.
std::string limit_share(const std::string& limit, int64_t sharers) {
  constexpr double kAutomaticShare = 0.9;  // as of one run
  if (sharers == 1 || limit == "none") return "";
  const auto amount = limit == "auto" ? MemoryAmount{.share = kAutomaticShare}
                                      : parse_memory(limit).value_or(MemoryAmount());
  if (amount.bytes > 0) return to_text(std::max<int64_t>(1, amount.bytes / sharers));
  return to_text(amount.share / static_cast<double>(sharers));
}

}  // namespace

std::vector<TrialShare> shares_of(const RunConfig& config, int64_t cores) {
  const std::vector<std::string>& devices = config.sweep.devices;
  const int64_t num = trials_at_a_time(config.sweep);
  std::vector<TrialShare> shares(static_cast<size_t>(num));
  for (size_t i = 0; i < shares.size(); ++i) {
    if (!devices.empty()) shares[i].device = devices[i % devices.size()];
    if (num > 1) shares[i].threads = std::max<int64_t>(1, cores / num);
  }
  for (TrialShare& share : shares) {
    const auto sharers = std::count_if(shares.begin(), shares.end(), [&](const TrialShare& other) {
      return other.device == share.device;
    });
    share.memory_limit = limit_share(config.memory.limit, sharers);
  }
  return shares;
}

SweepRunner::SweepRunner(const SweepPlace& place, Study& study, const Arguments& arguments,
                         const Registry& registry)
    : place_(place),
      study_(study),
      program_(arguments.program),
      registry_(registry),
      shares_(shares_of(place.config, probe_machine().cores)),
      report_(place, study, arguments.quiet || arguments.json) {
  for (char** entry = environ; *entry != nullptr; ++entry) environment_.emplace_back(*entry);
  processes_.start_guard();
}

SweepRunner::Ending SweepRunner::run() {
  try {
    if (!study_.records().empty()) report_.write_page();  // shows what a killed start left
    loop();
    report_.keep_files();
    report_.write_files(/*at_last=*/true);
    if (no_disk_.empty()) report_.write_page();
  } catch (...) {
    stop_all();
    throw;
  }
  if (!no_disk_.empty()) return Ending::no_disk;
  return sent_ != 0 ? Ending::stopped : Ending::done;
}

void SweepRunner::loop() {
  for (fill(); !running_.empty(); fill()) {
    if (report_.wants_table()) show();
    wait();
    while (const auto signal = processes_.next_signal()) handle(*signal);
    // Repeats until none is left, because ended() takes signals, too.
    for (auto ends = processes_.collect(); !ends.empty(); ends = processes_.collect()) {
      for (const ChildEnd& end : ends) ended(end);
    }
    look_for_life();
  }
  report_.clear_table();
}

void SweepRunner::fill() {
  while (may_start()) {
    if (!next_) next_ = next_work();
    if (!next_) return;
    await_lock(next_->folder);  // is_there() below must see what it saves at its end
    if (is_there(next_->trial, next_->folder, study_.options().metric)) {
      const Work work = *std::exchange(next_, std::nullopt);
      tell_reached(work);
      finish(work);
      continue;
    }
    if (next_->trial.alone && !running_.empty()) return;
    begin(*std::exchange(next_, std::nullopt));
  }
}

std::optional<SweepRunner::Work> SweepRunner::next_work() {
  if (const auto trial = study_.ask()) {
    return Work{.trial = *trial,
                .confirms = {},
                .name = fmt::format("trial {:04}", trial->id),
                .folder = place_.trial(trial->id)};
  }
  return next_confirming();
}

std::optional<SweepRunner::Work> SweepRunner::next_confirming() {
  const auto is_file = [&](const TrialRecord& record) {
    const auto known = is_file_.find(record.id);
    if (known != is_file_.end()) return known->second;
    const Silence silence;
    return is_file_[record.id] = is_as_written(place_.source, record.values, registry_.known());
  };
  for (const ConfirmingRun& run : runs_to_confirm(study_, place_.config.sweep.confirm, is_file)) {
    const fs::path folder = place_.confirming(run);
    const bool is_running = std::any_of(running_.begin(), running_.end(), [&](const Running& one) {
      return one.work.folder == folder;
    });
    if (is_running) continue;
    Trial trial{.alone = run.alone};
    if (run.trial) trial.values = study_.records()[static_cast<size_t>(*run.trial)].values;
    return Work{.trial = trial, .confirms = run, .name = name_of(run), .folder = folder};
  }
  return std::nullopt;
}

bool SweepRunner::may_start() const {
  const bool is_alone = !running_.empty() && running_.front().work.trial.alone;
  return sent_ == 0 && no_disk_.empty() && !is_alone && running_.size() < shares_.size();
}

size_t SweepRunner::free_place() const {
  size_t place = 0;
  const auto is_taken = [&](const Running& one) { return one.place == place; };
  while (std::any_of(running_.begin(), running_.end(), is_taken)) ++place;
  return place;
}

void SweepRunner::begin(const Work& work) {
  const Trial& trial = work.trial;
  const fs::path& folder = work.folder;
  const size_t place = free_place();
  TrialStart start{.id = trial.id, .values = trial.values, .share = shares_[place]};
  start.confirms = work.confirms;
  if (!work.confirms) {
    const TrialRecord& record = study_.records()[static_cast<size_t>(trial.id)];
    start.fork_of = record.fork_of;
    start.fork_step = record.fork_step;
  }
  const int64_t step = std::max<int64_t>({newest_step(folder), start.fork_step, 0});
  if (trial.alone) start.share.memory_limit.clear();
  // A trial of full length ends by itself, so it gets no stop_after. If it was killed at its goal
  // before its last evaluation, it makes that evaluation and ends.
  const int64_t whole = study_.options().steps;
  if (trial.until > 0 && trial.until < whole) {
    start.stop_after = std::max<int64_t>(0, trial.until - step);
  }
  const int output = open_output(folder);
  const int64_t said_before = std::max<int64_t>(0, ::lseek(output, 0, SEEK_END));
  const auto in_place = [&](const std::vector<std::string>& /*arguments*/) {
    study_.leave_journal();
    return train_trial(place_, start, program_, registry_);
  };
  const pid_t pid = processes_.start({.program = program_,
                                      .arguments = {program_},
                                      .environment = environment_,
                                      .out = output,
                                      .err = output,
                                      .in_place = in_place});
  ::close(output);
  running_.push_back({.child = num_started_++,
                      .work = work,
                      .place = place,
                      .said_before = said_before,
                      .signs = LifeSigns(pid, folder / "log.jsonl", Clock::now())});
  report_.begins(work.name, trial, step);
}

void SweepRunner::wait() {
  const int64_t timeout = place_.config.sweep.timeout;
  int64_t milliseconds = timeout == 0 ? -1 : std::min<int64_t>(1000, timeout * 250);
  if (const auto every = report_.table_every()) {
    milliseconds = milliseconds < 0 ? every->count() : std::min(milliseconds, every->count());
  }
  pollfd heard{processes_.signals(), POLLIN, 0};
  ::poll(&heard, 1, static_cast<int>(milliseconds));
}

void SweepRunner::handle(int signal) {
  if (signal == SIGCHLD) return;
  if (signal == SIGTSTP) return pause();
  if (interrupts_.is_second(signal)) {
    report_.say("[sweep] a second interrupt: the trials are killed");
    return processes_.send(SIGKILL);
  }
  if (sent_ != 0) return;
  sent_ = signal == SIGHUP ? SIGTERM : signal;
  report_.say("[sweep] " + signal_text(signal) +
              " came: the trials save and stop; Ctrl-C twice kills them");
  processes_.send(sent_);
}

// Ctrl-Z and fg reach only this process, so it passes both on to the trials.
void SweepRunner::pause() {
  processes_.send(SIGSTOP);
  report_.clear_table();
  ::raise(SIGSTOP);
  processes_.send(SIGCONT);
  for (Running& one : running_) one.signs.begin_anew(Clock::now());
}

void SweepRunner::look_for_life() {
  if (place_.config.sweep.timeout == 0) return;
  constexpr int64_t kNever = 1'000'000'000;  // 30 years; the clock counts nanoseconds
  const Clock::duration timeout =
      std::chrono::seconds(std::min(place_.config.sweep.timeout, kNever));
  const auto now = Clock::now();
  const Clock::duration since = now - std::exchange(looked_, now);
  // Two checks are at most a quarter of the timeout apart. A longer gap means that this process was
  // paused, and perhaps the trials as well: a container, or all processes of a job.
  const bool was_paused = since > timeout / 2;
  for (Running& one : running_) {
    if (was_paused) one.signs.begin_anew(now);
    if (was_paused) one.until += since;
    if (one.stage == Stage::running && one.signs.silence(now) >= timeout) {
      processes_.send(one.child, SIGTERM);
      one.stage = Stage::asked;
      one.until = now + std::min<Clock::duration>(timeout, kMostGrace);
    } else if (one.stage == Stage::asked && now >= one.until) {
      processes_.send(one.child, SIGKILL);
      one.stage = Stage::killed;
    }
  }
}

// Waits up to a second for a stop signal to this process. A sender that ends a whole job signals
// its processes in any order, so a trial may stop first.
void SweepRunner::hear_stop() {
  const auto until = Clock::now() + std::chrono::seconds(1);
  while (sent_ == 0 && Clock::now() < until) {
    pollfd heard{processes_.signals(), POLLIN, 0};
    ::poll(&heard, 1, 50);
    while (const auto signal = processes_.next_signal()) handle(*signal);
  }
}

void SweepRunner::ended(const ChildEnd& end) {
  report_.used(end.cpu_seconds);
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [&](const Running& one) { return one.child == end.child; });
  if (found == running_.end()) return;
  const Running one = *found;
  running_.erase(found);
  if (one.stage == Stage::running && was_asked_to_stop(end)) hear_stop();
  const bool is_by_signal = end.signal == SIGKILL || (end.signal != 0 && was_asked_to_stop(end));
  const bool is_told = sent_ != 0 && is_by_signal;
  if (is_told && one.stage == Stage::running) return;  // resumes when the sweep does
  tell(one, end);
}

void SweepRunner::tell(const Running& one, const ChildEnd& end) {
  const Work& work = one.work;
  const TrialEnd what = checked(end_of_trial(end, work.folder, one.said_before), work.trial,
                                work.folder, study_.options().metric);
  const auto fail = [&](TrialOutcome outcome, const std::string& reason) {
    tell_failure(work, outcome, reason);
  };
  if (one.stage != Stage::running && what.kind != TrialEnd::reached) {
    fail(TrialOutcome::hung,
         fmt::format("no log line and no processor time for {} s", place_.config.sweep.timeout));
  } else if (what.kind == TrialEnd::no_disk) {
    no_disk_ = what.reason;
    return report_.say(work.name + ": " + what.reason);
  } else if (what.kind == TrialEnd::interrupted) {
    if (sent_ != 0) return;
    fail(TrialOutcome::failed,
         "a signal or run.max_time stopped it: " + last_output_line(work.folder));
  } else if (what.kind == TrialEnd::reached) {
    tell_reached(work);
  } else {
    fail(what.outcome, what.reason);
  }
  finish(work);
}

void SweepRunner::tell_reached(const Work& work) {
  if (work.confirms) return cli::tell_reached(study_, *work.confirms, work.folder);
  cli::tell_reached(study_, work.trial, work.folder);
}

void SweepRunner::tell_failure(const Work& work, TrialOutcome outcome, const std::string& reason) {
  const int64_t step = last_step(work.folder);
  if (!work.confirms) return study_.tell(work.trial, outcome, reason, step);
  study_.confirm({.run = *work.confirms, .step = step, .outcome = outcome, .reason = reason});
}

void SweepRunner::finish(const Work& work) {
  if (work.confirms) {
    report_.told(study_.confirmed().back());
  } else {
    report_.told(work.trial);
  }
  report_.keep_files();
  report_.write_files(/*at_last=*/false);
}

void SweepRunner::show() {
  std::vector<LiveRun> runs;
  for (const Running& one : running_) {
    const Trial& trial = one.work.trial;
    runs.push_back({.name = one.work.name,
                    .values = join(trial.sets(), " "),
                    .folder = one.work.folder,
                    .until = trial.until > 0 ? trial.until : study_.options().steps});
  }
  report_.draw_table(runs);
}

// Asks the trials to save and stop. In the journal they are still running, so they resume with the
// sweep.
void SweepRunner::stop_all() {
  constexpr std::chrono::seconds kToSave{60};
  processes_.send(SIGTERM);
  const auto until = Clock::now() + kToSave;
  while (processes_.any_left() && Clock::now() < until) {
    pollfd heard{processes_.signals(), POLLIN, 0};
    ::poll(&heard, 1, 100);
    while (const auto signal = processes_.next_signal()) {
      if (interrupts_.is_second(*signal)) processes_.send(SIGKILL);
    }
    processes_.collect();
  }
}

}  // namespace tanren::cli
