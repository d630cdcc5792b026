#include "tanren/sweep/study.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/sweep/study_event.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tanren {

namespace {

// Equal for equal values alone.
std::string key_of(const TrialValues& values) {
  std::string key;
  for (const auto& [name, value] : values) key += name + '=' + value + '\n';
  return key;
}

// The last step of the trial's tell() or of a later report().
int64_t reached(const TrialRecord& record) {
  return record.metrics.empty() ? record.step : std::max(record.step, record.metrics.back().first);
}

// Whether `a` ranks before `b`. Both must have a value.
bool is_ahead(const TrialRecord& a, const TrialRecord& b, bool lower_is_better) {
  if (a.step != b.step) return a.step > b.step;
  return cost_of(a, lower_is_better) < cost_of(b, lower_is_better);
}

}  // namespace

Study::Study(Space space, StudyOptions options)
    : space_(std::move(space)),
      options_(std::move(options)),
      sampler_(make_sampler({.kind = options_.sampler,
                             .seed = options_.seed,
                             .lower_is_better = options_.lower_is_better})) {
  if (space_.size() == 0) throw ConfigError("[sweep] the space has no dimension; add one");
  const int64_t most = sampler_->most_trials(space_);
  if (options_.trials == 0 && most < 0) {
    throw ConfigError("[sweep] trials is 0, which stands for all points of a grid; set it");
  }
  if (most >= 0 && (options_.trials == 0 || options_.trials > most)) options_.trials = most;
  scheduler_ = make_scheduler({.kind = options_.scheduler,
                               .trials = options_.trials,
                               .steps = options_.steps,
                               .first_rung = options_.first_rung,
                               .reduction = options_.reduction,
                               .interval = options_.interval});
  if (!options_.journal.empty()) open_journal();
}

Study::~Study() = default;
Study::Study(Study&&) noexcept = default;

void Study::open_journal() {
  journal_ = Journal(options_.journal);
  const std::vector<std::string> lines = journal_.take_lines();
  const std::string head = head_line(space_, options_);
  if (lines.empty()) return journal_.append(head, true);
  size_t at = 0;
  int64_t trials = 0;
  try {
    check_head(lines[0], head);
    trials = trials_of_head(lines[0]);
    for (at = 1; at < lines.size(); ++at) {
      const StudyEvent event = event_of(lines[at]);
      check(event);
      apply(event);
      if (event.kind == StudyEvent::grow) trials = event.trial;
    }
  } catch (const ConfigError&) {
    throw;
  } catch (const InputError& error) {
    std::string_view what = error.what();
    constexpr std::string_view kRoom = "[sweep] ";
    if (what.starts_with(kRoom)) what.remove_prefix(kRoom.size());
    throw InputError(fmt::format("[sweep] {}:{}: {}; begin another sweep in another folder",
                                 options_.journal.string(), at + 1, what));
  }
  for (const TrialRecord& record : records_) {
    if (record.state == TrialState::running) interrupted_.push_back(record.id);
  }
  grow_from(trials);
}

void Study::check_head(const std::string& before, const std::string& now) const {
  const std::vector<std::string> changes = head_changes(before, now);
  if (changes.empty()) return;
  throw ConfigError("[sweep] " + options_.journal.string() + " is of another sweep (" +
                    join(changes, "; ") + "); take those values, or another folder");
}

void Study::grow_from(int64_t trials) {
  if (options_.trials == trials) return;
  if (options_.trials < trials || options_.scheduler == "pbt") {
    throw ConfigError(fmt::format(
        "[sweep] {} is of a sweep with trials {}, and now it is {}; {}", options_.journal.string(),
        trials, options_.trials,
        options_.scheduler == "pbt" ? "a population keeps its size" : "it may only grow"));
  }
  write({.kind = StudyEvent::grow, .trial = options_.trials});
}

// Checks the conditions that apply() relies on, because another program may have written the line.
void Study::check(const StudyEvent& event) const {
  const auto require = [](bool fine, const std::string& what) {
    if (!fine) throw InputError(what);
  };
  const auto is_there = [&](int64_t trial) { return trial < std::ssize(records_); };
  const std::string name = "trial " + std::to_string(event.trial);
  if (event.kind == StudyEvent::grow) return;
  if (event.kind == StudyEvent::start) {
    require(event.trial == std::ssize(records_),
            fmt::format("{} starts where trial {} is the next", name, records_.size()));
    const auto is_earlier = [&](const auto& trial) { return is_there(trial.value_or(-1)); };
    require(is_earlier(event.same_as) && is_earlier(event.fork_of) && is_earlier(event.replaces),
            name + " names a later trial");
    require(event.fork_of.has_value() == event.replaces.has_value(),
            name + " has only one of fork_of and replaces");
    if (scheduler_->is_external()) {
      const size_t replaced = static_cast<size_t>(event.replaces.value_or(0));
      return require(!event.fork_of || records_[replaced].state == TrialState::running,
                     name + " replaces a trial that does not run");
    }
    const Decision next = scheduler_->next();
    const auto kind = event.fork_of ? Decision::fork : Decision::start;
    require(next.kind == kind || (kind == Decision::start && next.kind != Decision::fork),
            name + " starts, and the scheduler has it otherwise");
    require(!event.fork_of || (next.trial == *event.replaces && next.source == *event.fork_of),
            name + " forks, and the scheduler has another fork");
    return;
  }
  if (event.kind == StudyEvent::confirm) {
    const std::string problem = problem_of(*this, confirmed_of(event).run);
    return require(problem.empty(), problem);
  }
  require(is_there(event.trial), name + " never started");
  const TrialState state = records_[static_cast<size_t>(event.trial)].state;
  if (event.kind != StudyEvent::resume) {
    return require(state == TrialState::running, name + " does not run");
  }
  require(state == TrialState::paused || state == TrialState::waiting, name + " has not paused");
}

void Study::write(const StudyEvent& event) {
  if (!options_.journal.empty()) {
    journal_.append(event_line(event), event.kind != StudyEvent::report);
  }
  apply(event);
}

void Study::apply(const StudyEvent& event) {
  if (event.kind == StudyEvent::grow) return scheduler_->grow(event.trial);
  if (event.kind == StudyEvent::start) return apply_start(event);
  if (event.kind == StudyEvent::confirm) return confirmed_.push_back(confirmed_of(event));
  TrialRecord& record = records_[static_cast<size_t>(event.trial)];
  if (event.kind == StudyEvent::end) return apply_end(record, event);
  if (event.kind == StudyEvent::report) {
    if (record.metrics.empty() || event.step > record.metrics.back().first) {
      record.metrics.emplace_back(event.step, *event.value);
    }
    return;
  }
  // A trial that waited repeats the work that was refused.
  if (record.state == TrialState::waiting) {
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), record.id));
  } else {
    record.begun = record.step;
  }
  record.until = event.until;
  record.alone = event.alone;
  record.state = TrialState::running;
  ++num_running_;
  scheduler_->resumed(record.id, event.until);
}

void Study::apply_start(const StudyEvent& event) {
  TrialRecord record;
  record.id = event.trial;
  record.point = space_.point_of(event.values);
  record.values = event.values;
  record.until = event.until;
  record.same_as = event.same_as;
  record.fork_of = event.fork_of;
  if (record.same_as) record.state = TrialState::ended;
  if (!record.same_as) ++num_running_;
  if (event.fork_of) {
    record.begun = record.fork_step = reached(records_[static_cast<size_t>(*event.fork_of)]);
    TrialRecord& replaced = records_[static_cast<size_t>(*event.replaces)];
    if (replaced.state == TrialState::running) {  // another program does not pause it before
      --num_running_;
      replaced.step = reached(replaced);
      if (!replaced.metrics.empty()) replaced.value = replaced.metrics.back().second;
      replaced.state = TrialState::paused;
    }
    if (replaced.state == TrialState::paused) {
      replaced.state = TrialState::ended;
      replaced.outcome = TrialOutcome::stopped;
    }
    scheduler_->forked(record.id, event.until, *event.replaces);
  } else {
    scheduler_->started(record.id, event.until, !record.same_as);
  }
  by_values_.emplace(key_of(record.values), record.id);
  records_.push_back(std::move(record));
}

void Study::apply_end(TrialRecord& record, const StudyEvent& event) {
  --num_running_;
  record.step = event.step;
  record.value = event.value;
  record.reason = event.reason;
  if (event.value) {
    if (record.metrics.empty() || event.step > record.metrics.back().first) {
      record.metrics.emplace_back(event.step, *event.value);
    }
    const bool is_whole = event.step >= scheduler_->last_step();
    record.state = is_whole ? TrialState::ended : TrialState::paused;
    record.outcome = TrialOutcome::finished;
    return scheduler_->told(record.id, event.step, cost_of(record, options_.lower_is_better));
  }
  const bool is_refused = *event.outcome == TrialOutcome::refused;
  if (is_refused && !record.alone && scheduler_->lets_wait()) {
    record.state = TrialState::waiting;
    waiting_.push_back(record.id);
    return scheduler_->put_off(record.id);
  }
  record.state = TrialState::ended;
  record.outcome = is_refused && record.alone ? TrialOutcome::too_large : *event.outcome;
  scheduler_->told(record.id, event.step, cost_of(record, options_.lower_is_better));
}

std::optional<Trial> Study::ask() {
  if (scheduler_->is_external()) return std::nullopt;
  while (!interrupted_.empty()) {
    const TrialRecord& record = records_[static_cast<size_t>(interrupted_.front())];
    interrupted_.pop_front();
    if (record.state == TrialState::running) return work_of(record);
  }
  for (;;) {
    const Decision decision = scheduler_->next();
    std::optional<StudyEvent> event = event_for(decision);
    if (!event) return std::nullopt;
    write(*event);
    if (!event->same_as) return work_of(records_[static_cast<size_t>(event->trial)]);
  }
}

std::optional<StudyEvent> Study::event_for(const Decision& decision) const {
  switch (decision.kind) {
    case Decision::wait: return std::nullopt;
    case Decision::end: {
      if (waiting_.empty() || num_running_ > 0) return std::nullopt;
      const int64_t trial = waiting_.front();
      return StudyEvent{.kind = StudyEvent::resume,
                        .trial = trial,
                        .until = records_[static_cast<size_t>(trial)].until,
                        .alone = true};
    }
    case Decision::resume:
      return StudyEvent{
          .kind = StudyEvent::resume, .trial = decision.trial, .until = decision.until};
    case Decision::start: {
      const int64_t id = std::ssize(records_);
      StudyEvent event{.kind = StudyEvent::start, .trial = id, .until = decision.until};
      event.values = space_.values_of(sampler_->propose(space_, id, records_));
      const auto same = by_values_.find(key_of(event.values));
      // Members of a population may have equal values, because forks change values later.
      if (same != by_values_.end() && options_.scheduler != "pbt") event.same_as = same->second;
      return event;
    }
    case Decision::fork: {
      const int64_t id = std::ssize(records_);
      StudyEvent event{.kind = StudyEvent::start, .trial = id, .until = decision.until};
      const auto& source = records_[static_cast<size_t>(decision.source)];
      event.values =
          space_.values_of(space_.perturbed(source.point, [&](size_t dimension, int64_t use) {
            return keyed_share(options_.seed, id, dimension, use);
          }));
      event.fork_of = decision.source;
      event.replaces = decision.trial;
      return event;
    }
  }
  return std::nullopt;
}

Trial Study::work_of(const TrialRecord& record) const {
  Trial trial{.id = record.id,
              .begin = record.begun,
              .until = record.until,
              .alone = record.alone,
              .values = record.values};
  if (record.fork_of && record.begun == record.fork_step) {
    trial.fork_of = record.fork_of;
    trial.fork_step = record.fork_step;
  }
  return trial;
}

const TrialRecord& Study::running(const Trial& trial) const {
  const bool is_there = trial.id >= 0 && trial.id < std::ssize(records_);
  const TrialRecord* record = is_there ? &records_[static_cast<size_t>(trial.id)] : nullptr;
  // After a tell() the trial may already run again, up to a later step.
  if (!is_there || record->state != TrialState::running || record->until != trial.until) {
    throw ConfigError(
        fmt::format("[sweep] trial {} does not run; tell what ask() returned, and once", trial.id));
  }
  return *record;
}

void Study::tell(const Trial& trial, double value) {
  const TrialRecord& record = running(trial);
  if (!std::isfinite(value)) {
    return tell(trial, TrialOutcome::diverged, "the value is " + to_text(value), record.until);
  }
  write({.kind = StudyEvent::end, .trial = record.id, .step = record.until, .value = value});
}

void Study::tell(const Trial& trial, TrialOutcome outcome, const std::string& reason,
                 int64_t step) {
  const TrialRecord& record = running(trial);
  if (outcome == TrialOutcome::finished || outcome == TrialOutcome::stopped) {
    throw ConfigError("[sweep] a trial that " + std::string(to_text(outcome)) +
                      " has a value; tell that");
  }
  write({.kind = StudyEvent::end,
         .trial = record.id,
         .step = step,
         .outcome = outcome,
         .reason = utf8_text(one_line(reason))});  // as it comes back from the journal
}

void Study::report(const Trial& trial, int64_t step, double value) {
  const TrialRecord& record = running(trial);
  const bool is_new = record.metrics.empty() || step > record.metrics.back().first;
  if (!is_new || !std::isfinite(value)) return;
  write({.kind = StudyEvent::report, .trial = record.id, .step = step, .value = value});
}

void Study::confirm(const Confirmed& end) {
  if (const std::string problem = problem_of(*this, end.run); !problem.empty()) {
    throw ConfigError("[sweep] " + problem + "; tell what runs_to_confirm() returns, and once");
  }
  write(event_of(end));
}

bool Study::is_done() const {
  return num_running_ == 0 && waiting_.empty() && scheduler_->next().kind == Decision::end;
}

const TrialRecord* Study::best() const {
  const TrialRecord* best = nullptr;
  for (const TrialRecord& record : records_) {
    if (!record.value) continue;
    if (best == nullptr || is_ahead(record, *best, options_.lower_is_better)) best = &record;
  }
  return best;
}

}  // namespace tanren
