// The trials of a study in the order of their success, as text and as JSON. Pure functions. Called
// by the verb sweep, by its page and by programs.
#pragma once

#include "tanren/sweep/study.h"

#include <string>
#include <vector>

namespace tanren {

// First the trials with a value, by the step that they reached (highest first) and then by value
// (best first). Then the trials without a value, by outcome and id. A trial that has the result of
// another follows it.
std::vector<const TrialRecord*> ranked(const Study& study);

// "finished", "paused", "running", …; a paused trial of a study that is done was "stopped".
std::string state_text(const Study& study, const TrialRecord& record);

// The trial that has the result of `record`: itself, or the earlier trial of the same values.
const TrialRecord& answering(const Study& study, const TrialRecord& record);
// "optimizer.kind=sgd optimizer.momentum=0.9"
std::string values_text(const TrialRecord& record);
// How many trials there are of each state: "12 finished, 3 paused".
std::string counts_text(const Study& study);

// One line with the result of the confirming runs of each of the best trials, and one line for each
// confirming run that failed. Empty if no run has ended.
std::vector<std::string> confirmation_lines(const Study& study);

// {"metric", "mode", "done", "trials": [{"rank", "trial", "state", "value", "step", "values",
// "reason", "same_as", "fork_of", "fork_step", "metrics"}]}, with a line end. Once a confirming run
// has ended, also "confirmation": {"trials": [{"trial", "pairs", "mean", "standard_error", "p",
// "verdict"}], "runs": [{"trial", "seed", "state", "value", "step", "reason"}]}.
std::string leaderboard_json(const Study& study);
// A table for a terminal: the first `rows` trials, the number of trials in each state, and
// confirmation_lines().
std::string leaderboard_text(const Study& study, size_t rows = 20);

}  // namespace tanren
