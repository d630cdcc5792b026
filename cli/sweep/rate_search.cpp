#include "cli/sweep/rate_search.h"

#include "tanren/base/error.h"

#include <cmath>

namespace tanren::cli {

namespace {

ObjectiveReport counted_update(Rehearsal& run) {
  constexpr int kMostSkips = 100;
  for (int skips = 0; skips < kMostSkips; ++skips) {
    const StepReport report = run.step();
    if (report.objectives.empty()) continue;  // no objective had its turn in this step
    const ObjectiveReport& objective = report.objectives.front();
    if (objective.verdict.action != Action::skip) return objective;
  }
  throw RunError(
      "[sweep] the guard skipped 100 batches in a row, so that no rate can be found; train without "
      "sweep.find, and the log says why");
}

std::string end_by(const ObjectiveReport& report) {
  if (report.verdict.action == Action::halt) {
    return "the guard stopped it: " + std::string(name(report.verdict.cause));
  }
  return std::isfinite(report.loss) ? "the smoothed loss is above 4 × its lowest"
                                    : "the loss is not finite";
}

}  // namespace

RateSearch search_rates(Rehearsal& run) {
  RateSearch search;
  for (const double rate : finder_rates()) {
    run.use_learning_rate(rate);
    const ObjectiveReport report = counted_update(run);
    search.rates.push_back(rate);
    search.losses.push_back(report.loss);
    const bool goes_on = search.trend.add(report.loss) && report.verdict.action != Action::halt;
    if (goes_on) continue;
    search.end = end_by(report);
    break;
  }
  return search;
}

}  // namespace tanren::cli
