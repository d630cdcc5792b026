// The outcome of a trial's process, from how it ended and from its run folder. Used by
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
    reached,      // its goal, or its regular end before the goal
    failed,       // `outcome` and `reason`
    interrupted,  // it saved and stopped, or had not begun
    no_disk,      // `reason`
  };
  Kind kind = failed;
  TrialOutcome outcome = TrialOutcome::failed;
  std::string reason = {};
};

// The end of a process that trained the folder's run. `said_before`: bytes that output.txt had when
// the process began.
TrialEnd end_of_trial(const ChildEnd& end, const std::filesystem::path& folder,
                      int64_t said_before = 0);
// Whether a signal that asks a run to stop ended the process, or it saved and stopped (exit code
// 130).
bool was_asked_to_stop(const ChildEnd& end);

// The last line of the folder's output.txt that is not blank, after its first `from` bytes. May be
// empty.
std::string last_output_line(const std::filesystem::path& folder, int64_t from = 0);

// The newest step of a complete checkpoint of the run folder; -1: there is none.
int64_t newest_step(const std::filesystem::path& folder);
// The last step in the run's log; 0: there is none.
int64_t last_step(const std::filesystem::path& folder);

// Whether the run has a checkpoint at the trial's goal, or is finished.
bool has_come(const Trial& trial, const std::filesystem::path& folder);
// Whether the run has already reached the trial's goal and has the value there. A sweep that was
// killed may not have written that down.
bool is_there(const Trial& trial, const std::filesystem::path& folder, const std::string& metric);

// Corrects `end` by what the folder holds. A run that is at the trial's goal has reached it,
// however its process ended, for example by a kill of the sweep. A process that ended with exit
// code 0 before the goal has failed, for example because a user's code called exit(0).
TrialEnd checked(const TrialEnd& end, const Trial& trial, const std::filesystem::path& folder,
                 const std::string& metric);

// Reports all values of the metric in the run's log to the study, and the last one up to the
// trial's goal as the trial's value. A run that ended before its goal, by early_stop, counts as if
// it had reached the goal with its last value.
void tell_reached(Study& study, const Trial& trial, const std::filesystem::path& folder);
// The same for a confirming run. Its value is the last one, because it runs to its end.
void tell_reached(Study& study, const ConfirmingRun& run, const std::filesystem::path& folder);

}  // namespace tanren::cli
