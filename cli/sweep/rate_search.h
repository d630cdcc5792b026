// The updates of a learning-rate finder, made in memory by a rehearsal. Used by the verb sweep.
#pragma once

#include "tanren/anatomy/rehearsal.h"
#include "tanren/sweep/rate_finder.h"

#include <string>
#include <vector>

namespace tanren::cli {

struct RateSearch {
  std::vector<double> rates, losses;  // of each update
  LossTrend trend;                    // of the losses
  std::string end;                    // why it ended before the last rate; empty: it did not
};

// Makes one update of a whole global batch with each of finder_rates(), until the losses or the
// guard end the search. A batch that the guard skips, for example after an fp16 overflow, gives no
// result for its rate, so the next batch gets the same rate. RunError if 100 batches in a row are
// skipped.
RateSearch search_rates(Rehearsal& run);

}  // namespace tanren::cli
