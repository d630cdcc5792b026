// Confirmation: when a search is done, its best trials run again with other seeds, and so does the
// config file with its own values, none of the space. These are complete runs, compared seed by
// seed, so that the effect that a seed has on both cancels out. Pure functions of the study, and
// thus of its journal. Called by Study, the leaderboard and the verb sweep.
#pragma once

#include "tanren/sweep/trial.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

class Study;

// A whole run with another seed than the search's.
struct ConfirmingRun {
  std::optional<int64_t> trial;  // the trial with its values; empty: the file's own
  int64_t seed = 0;              // run.seed
  bool alone = false;            // nothing else may run beside it
};

// How one ended.
struct Confirmed {
  ConfirmingRun run;
  int64_t step = 0;             // that it reached
  std::optional<double> value;  // the metric at `step`; empty: see `outcome` and `reason`
  TrialOutcome outcome = TrialOutcome::finished;
  std::string reason;
};

constexpr int64_t kMostConfirmed = 3;  // trials

// "trial 0007, seed 4", "the file, seed 4"
std::string name_of(const ConfirmingRun& run);

// The reason why study.confirm() must refuse an end of this run. Empty if it is allowed.
std::string problem_of(const Study& study, const ConfirmingRun& run);

// Whether a run with this last end is due. It is if it never ended (null), or if it was refused
// while others ran.
bool is_due(const Confirmed* last_end);
// The last end of a run; null: it has none.
const Confirmed* last_end_of(const std::vector<Confirmed>& ends, const ConfirmingRun& run);

// Whether trials changed their values during training. Then no single set of values describes the
// best trial.
bool is_population(const Study& study);

// The due runs of the file and of the best kMostConfirmed trials, with each of the `seeds` seeds
// that follow the study's. Runs of the same seed are together, the file's first. A refused run is
// repeated once, at the end and alone. Trials for which `is_file` returns true have the file's own
// values and are left out. Empty before the study is done, and for a population.
std::vector<ConfirmingRun> runs_to_confirm(const Study& study, int64_t seeds,
                                           const std::function<bool(const TrialRecord&)>& is_file);

// Comparison of a trial with the file's own values: the differences of the metric, trial minus
// file, over all seeds with which both runs have a value.
struct PairedDifference {
  int64_t trial = 0;
  int64_t pairs = 0;
  double mean = 0;              // of the differences; 0 without a pair
  std::optional<double> error;  // standard error of the mean, ≥ 0; empty: fewer than two pairs
  // Two-sided Student's t test of the pairs: the probability of a mean at least this far from 0, if
  // only seeds cause differences. Empty if `error` is empty. Also empty if all differences are
  // equal and not 0, because discrete values such as accuracies can be equal by chance.
  std::optional<double> p;

  // Whether seeds alone would cause such a mean with a probability above 1/20, or p is unknown.
  bool is_noise() const { return !p || *p > 0.05; }
};

// The differences of each trial that has confirming runs, in the order of the leaderboard.
std::vector<PairedDifference> paired_differences(const Study& study);
// "+0.010 ± 0.002 accuracy over the file, better (3 seeds, p = 0.038)", or "within noise" or
// "worse" instead of "better". The number after ± is the standard error.
std::string text_of(const PairedDifference& difference, const std::string& metric,
                    bool lower_is_better);

// The probability of |t| or more under Student's distribution with so many degrees of freedom, ≥ 1.
double two_sided_p(double t, int64_t degrees);

}  // namespace tanren
