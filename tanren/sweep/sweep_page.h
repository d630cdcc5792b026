// The page of a sweep, sweep.html: its best values, learning curves, each dimension against the
// metric, and a table of the trials. One file that loads nothing. A pure function of the study and
// of the facts that its journal does not have. Called by the verb sweep.
#pragma once

#include "tanren/sweep/study.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

using Evaluations = std::vector<std::pair<int64_t, double>>;  // step and value; NaN: not finite

struct SweepPageFacts {
  std::string name;                            // of the sweep: its folder
  std::string best_sets, best_toml;            // the best trial's values, as options and as TOML
  std::optional<double> seconds, cpu_seconds;  // of the sweep; CPU time of its trials
  // The evaluations in a trial's log, by trial, where the journal may lack some of them.
  std::map<int64_t, Evaluations> logs;
};

// If there are many trials, the page shows the best and an even selection of the others, so that it
// stays below 3 MB.
std::string sweep_page(const Study& study, const SweepPageFacts& facts);

// The trials whose curves the page draws; at most 200.
std::vector<const TrialRecord*> curve_trials(const Study& study);

}  // namespace tanren
