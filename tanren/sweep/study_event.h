// The lines of a study's journal as values: a head, which describes the study, and events. Called
// by Study and by tests.
#pragma once

#include "tanren/sweep/study.h"
#include "tanren/sweep/trial.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct StudyEvent {
  enum Kind {
    start,   // {"start": trial, "values": {…}, "until"}; "same_as", or "fork_of", "replaces"
    report,  // {"report": trial, "step", "value"}
    resume,  // {"resume": trial, "until"}; "alone": true
    end,     // {"end": trial, "step", "value"}, or "outcome" and "reason" instead of the value
    grow,    // {"trials": number}
    // {"confirm": seed, "of": trial, "step", …}, then as for `end`; "alone": true. Without "of"
    // the run has the file's own values.
    confirm,
  };
  Kind kind = start;
  int64_t trial = 0;  // grow: the new number of trials; confirm: the seed
  TrialValues values;
  int64_t until = 0, step = 0;
  std::optional<double> value;
  std::optional<TrialOutcome> outcome;
  std::string reason;
  std::optional<int64_t> same_as, fork_of, replaces, of;
  bool alone = false;
};

// A value that is not finite becomes diverged; refused of a run that was alone becomes too_large.
StudyEvent event_of(const Confirmed& end);
Confirmed confirmed_of(const StudyEvent& event);

// One JSON object without a line end.
std::string event_line(const StudyEvent& event);
// InputError, without a line number, if the line is not an event.
StudyEvent event_of(const std::string& line);

std::string head_line(const Space& space, const StudyOptions& options);
// The keys whose values differ between two heads, with both values, but for trials. InputError,
// without a place, if `before` is no head.
std::vector<std::string> head_changes(const std::string& before, const std::string& now);
int64_t trials_of_head(const std::string& head);

}  // namespace tanren
