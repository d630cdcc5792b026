// Files of a sweep's folder whose content is not all from its journal: how long the sweep took
// (time.json), and the page for people (sweep.html). Used by sweep_report.cpp.
#pragma once

#include "tanren/sweep/study.h"
#include "cli/sweep/sweep_place.h"

namespace tanren::cli {

// Totals over all starts of a sweep, as far as they wrote them down.
struct SweepTime {
  double seconds = 0;      // of the sweep
  double cpu_seconds = 0;  // processor time of the trials' processes that ended
};

// Zeros if there is no such file.
SweepTime read_time(const SweepPlace& place);
// RunError as write_file.
void write_time(const SweepPlace& place, const SweepTime& time);

// Reads the logs of trials whose evaluations are not all in the journal, because they run or
// failed. RunError as write_file.
void write_page(const SweepPlace& place, const Study& study, const SweepTime& time);

}  // namespace tanren::cli
