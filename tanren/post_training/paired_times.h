// Measures the times of several ways to do the same work, in turns. Each block runs every way once,
// so that other load on the machine affects all ways equally. Called by quantize_file.h.
#pragma once

#include "tanren/post_training/quantize_report.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace tanren {

// Does the work `repeats` times; returns the seconds that it took.
using TimedBlock = std::function<double(int64_t repeats)>;

struct WayTimes {
  Spread seconds;  // of doing it once, over the blocks
  Spread ratio;    // to the first way's seconds in the same block
};

// Each way runs once before it is timed. Blocks, at least 5 and at most 31, take about 10 seconds
// in all unless the work is longer; every second one runs the ways backwards.
std::vector<WayTimes> paired_times(const std::vector<TimedBlock>& ways);

// Median, least and largest; of an even number the mean of the two in the middle. Not empty.
Spread spread_of(std::vector<double> values);

}  // namespace tanren
