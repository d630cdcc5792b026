// What became of a trial's process, from how it ended and from its run folder. Used by
// sweep_runner.cpp.
#pragma once

#include "tanren/sweep/study.h"
#include "cli/launch/child_processes.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tanren::cli {

struct TrialEnd {
  enum Kind {
    reached,      // its goal, or its own end before
    failed,       // `outcome` and `reason`
    interrupted,  // it saved and stopped, or had not begun
    no_disk,      // `reason`
  };
  Kind kind = failed;
  TrialOutcome outcome = TrialOutcome::failed;
  std::string reason = {};
};

// Of a process of the folder's run that ended by itself. `said_before`: bytes that output.txt had
// when the process began.
TrialEnd end_of_trial(const ChildEnd& end, const std::filesystem::path& folder,
                      int64_t said_before = 0);
// Whether a signal that asks a run to stop ended it.
bool was_asked_to_stop(const ChildEnd& end);

// The last line of the folder's output.txt, behind its first `from` bytes, that is not blank; may
// be empty.
std::string last_output_line(const std::filesystem::path& folder, int64_t from = 0);

// The newest step of a complete checkpoint of the run folder; -1: there is none.
int64_t newest_step(const std::filesystem::path& folder);
// The last step in the run's log; 0: there is none.
int64_t last_step(const std::filesystem::path& folder);

// Whether the run is saved at the trial's goal, or finished before.
bool has_come(const Trial& trial, const std::filesystem::path& folder);
// Whether the run has come to the trial's goal already, with its value: a sweep was killed before
// it could write that down.
bool is_there(const Trial& trial, const std::filesystem::path& folder, const std::string& metric);

// The end as the folder has it: a run that is at the trial's goal has reached it however its
// process ended, as after a kill of the sweep; and one that is not has failed, if a user's code
// left by exit(0).
TrialEnd checked(const TrialEnd& end, const Trial& trial, const std::filesystem::path& folder,
                 const std::string& metric);

// Reports all values of the metric in the run's log, and tells the study the one at the trial's
// goal. A run that ended before its goal, by early_stop, is told as if it had come there with its
// last value.
void tell_reached(Study& study, const Trial& trial, const std::filesystem::path& folder);
// The same of a confirming run, which goes to its end: its last value.
void tell_reached(Study& study, const ConfirmingRun& run, const std::filesystem::path& folder);

}  // namespace tanren::cli
