// Confirmation: once a search is done, its best trials and the file's own values, without any of
// the space, run again with other seeds. They are whole runs, compared seed by seed: what a seed
// adds to both is not in their difference. Pure functions of the study, so of its journal. Called
// by Study, the leaderboard and the verb sweep.
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
  std::optional<int64_t> trial;  // whose values it has; empty: the file's own
  int64_t seed = 0;              // run.seed
  bool alone = false;            // nothing else may run beside it
};

// How one ended.
struct Confirmed {
  ConfirmingRun run;
  int64_t step = 0;             // that it reached
  std::optional<double> value;  // the metric there; empty: `outcome` and `reason` say why not
  TrialOutcome outcome = TrialOutcome::finished;
  std::string reason;
};

constexpr int64_t kMostConfirmed = 3;  // trials

// "trial 0007, seed 4", "the file, seed 4"
std::string name_of(const ConfirmingRun& run);

// Why that run may not have ended now; empty: it may.
std::string problem_of(const Study& study, const ConfirmingRun& run);

// Whether a run with this last end is due: it has none, or was refused beside others.
bool is_due(const Confirmed* last_end);
// The last end of a run; null: it has none.
const Confirmed* last_end_of(const std::vector<Confirmed>& ends, const ConfirmingRun& run);

// Whether trials changed their values on the way, so that no set of values stands for the best.
bool is_population(const Study& study);

// The runs that are due: of the file and of the best kMostConfirmed trials, with each of the
// `seeds` seeds that follow the study's; those of a seed together, the file's first. A run that was
// refused comes once more, at the end and alone. Trials for which `is_file` holds have the file's
// own values and are left out. Empty before the study is done, and of a population.
std::vector<ConfirmingRun> runs_to_confirm(const Study& study, int64_t seeds,
                                           const std::function<bool(const TrialRecord&)>& is_file);

// A trial's values against the file's own: the differences of the metric, trial less file, of all
// seeds with which both runs came to a value.
struct PairedDifference {
  int64_t trial = 0;
  int64_t pairs = 0;
  double mean = 0;              // of the differences; 0 without a pair
  std::optional<double> error;  // standard error of the mean, ≥ 0; empty: fewer than two pairs
  // Student's t test of the pairs, to both sides: the probability of a mean so far from 0, or
  // farther, if seeds were all that makes differences. Empty as `error`, and if all differences are
  // equal and not 0: values in steps, as accuracies are, can be so by chance.
  std::optional<double> p;

  // Whether seeds alone make such a mean more often than once in twenty times, or nobody can say.
  bool is_noise() const { return !p || *p > 0.05; }
};

// Of each trial that has confirming runs, in the order of the leaderboard.
std::vector<PairedDifference> paired_differences(const Study& study);
// "+0.010 ± 0.002 accuracy over the file, better (3 seeds, p = 0.038)", or "within noise", or
// "worse". What follows ± is the standard error.
std::string text_of(const PairedDifference& difference, const std::string& metric,
                    bool lower_is_better);

// The probability of |t| or more under Student's distribution with so many degrees of freedom, ≥ 1.
double two_sided_p(double t, int64_t degrees);

}  // namespace tanren
