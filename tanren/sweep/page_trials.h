// Selects the trials and points that a sweep's page shows if there are many, and the look of each
// trial. Pure functions. Used by sweep_page.cpp and the plots.
#pragma once

#include "tanren/sweep/study.h"
#include "tanren/sweep/sweep_page.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

// At most `most` of the numbers 0 to count - 1, rising: the first half of them are the first
// numbers, the others lie evenly among the rest, and the last one is there.
std::vector<size_t> first_and_spread(size_t count, size_t most);

// The trials that the page shows, in their order of success.
std::vector<const TrialRecord*> shown_trials(const Study& study);

// At most `most` + 1 of the evaluations, in their order, with the first, the last and the best.
Evaluations thinned(const Evaluations& evaluations, size_t most, bool lower_is_better);

// The colour of a trial in that state (state_text), and its line's dashes, for paper.
struct TrialLook {
  std::string_view states;  // separated by blanks
  std::string_view color, dashes;
};
const std::vector<TrialLook>& trial_looks();
const TrialLook& look_of(std::string_view state);

// `text` of a file or a user as the page shows it: one line of valid characters, at most `most`
// bytes, then "…" if it was cut. Not escaped.
std::string page_text(std::string_view text, size_t most = 400);

}  // namespace tanren
