// The trials of a sweep as data: the journal's information about each trial (TrialRecord), and the
// work that Study::ask() returns (Trial). Torch-free.
#pragma once

#include "tanren/sweep/space.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

// How a trial ended. Only a finished or stopped one has a value; no other ends the sweep.
enum class TrialOutcome {
  finished,       // it reached its last step
  stopped,        // by the scheduler
  diverged,       // a value that is not finite, or the guard's halt
  out_of_memory,  // during training
  too_large,      // refused, and again when it was alone
  refused,        // before the first step: it does not fit beside the others
  crashed,        // by a signal
  hung,           // no sign of life
  failed,         // another error
};
// "out_of_memory" and so on.
std::string to_text(TrialOutcome outcome);
// Empty if no outcome has that name.
std::optional<TrialOutcome> trial_outcome(const std::string& name);

enum class TrialState {
  running,  // returned by ask(), no tell() yet
  paused,   // tell() at a rung or an exchange; the scheduler may resume it
  waiting,  // refused once; runs alone when nothing else does
  ended,
};

struct TrialRecord {
  int64_t id = 0;  // from 0, in the order of the journal
  SpacePoint point;
  TrialValues values;
  TrialState state = TrialState::running;
  TrialOutcome outcome = TrialOutcome::finished;    // of an ended one
  std::string reason;                               // of a failure, one line; may be empty
  int64_t begun = 0;                                // the step at which its present work began
  int64_t until = 0;                                // the step at which its present work ends
  int64_t step = 0;                                 // the step reached at the last tell()
  std::optional<double> value;                      // the metric at `step`
  std::vector<std::pair<int64_t, double>> metrics;  // reported: step and value, steps rising
  std::optional<int64_t> same_as;  // earlier trial of the same values, whose result it takes
  std::optional<int64_t> fork_of;  // the trial that it was forked from
  int64_t fork_step = 0;           // at that step
  bool alone = false;              // its present work needs the machine for itself
};

// Values are ranked by it: lower is better; infinite without a value.
inline double cost_of(const TrialRecord& record, bool lower_is_better) {
  if (!record.value) return std::numeric_limits<double>::infinity();
  return lower_is_better ? *record.value : -*record.value;
}

// Work for an executor: train the trial up to step `until`, then call tell() with the metric.
struct Trial {
  int64_t id = 0;
  int64_t begin = 0;  // step to resume from, at the trial's own checkpoint; 0: the start
  int64_t until = 0;  // the step to end at; 0: the trial's own end
  std::optional<int64_t> fork_of;  // if begin == fork_step: the trial whose checkpoint to load
  int64_t fork_step = 0;
  bool alone = false;  // nothing else may run beside it
  TrialValues values;

  bool has(const std::string& key) const;
  // The value of that key. ConfigError if the trial does not have the key, for number() also if it
  // is no number.
  const std::string& text(const std::string& key) const;
  double number(const std::string& key) const;
  // "key=value" for --set, in order.
  std::vector<std::string> sets() const;
};

}  // namespace tanren
