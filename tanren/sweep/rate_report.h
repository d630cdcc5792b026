// What a learning-rate finder found, as text, as JSON and as a page. Pure functions. Called by the
// verb sweep.
#pragma once

#include "tanren/sweep/rate_finder.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

struct RateReport {
  std::string name;                   // of the run
  std::string table = "optimizer";    // of the config, whose learning_rate the task trains with
  std::string subject;                // "mlp, adamw, 32 samples an update"
  int64_t begun = 0;                  // the step whose weights it began with
  std::vector<double> rates, losses;  // of each update
  LossTrend trend;                    // of the losses
  RateSuggestion suggestion;
  std::string end;  // why it ended before its last update; empty: it did not
};

// Ends with TOML, one line per suggestion. All lines but the first are commented out.
std::string rate_report_text(const RateReport& report);
// {"name", "key", "subject", "begun", "end", "steepest", "valley", "rates", "losses", "smoothed",
// "lightning"}, with a line end. A number that is not finite is null, and so is a suggestion that
// there is not.
std::string rate_report_json(const RateReport& report);
// A self-contained page: the losses against the rates, on a log scale, and the text.
std::string rate_report_html(const RateReport& report);

}  // namespace tanren
