// The losses of 64 whole runs on the digits (tests/fixtures/sweep_curves.json), and a sweep over
// them without any training. For unit tests and study_bench.
#pragma once

#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/base/philox.h"
#include "tanren/sweep/scheduler.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tanren::testing {

// The first rung of asha on these curves, in steps. About one trial of sixteen trains to its end.
constexpr int64_t kCurvesFirstRung = 60;

struct RecordedCurves {
  int64_t every = 0;                             // steps between evaluations
  std::vector<std::vector<double>> losses = {};  // by run and evaluation

  int64_t steps() const { return every * std::ssize(losses[0]); }
  double loss(size_t run, int64_t step) const {
    return losses[run].at(static_cast<size_t>(step / every - 1));
  }
  // The least loss at the end of a run.
  double best() const {
    double least = std::numeric_limits<double>::infinity();
    for (const auto& run : losses) least = std::min(least, run.back());
    return least;
  }
};

inline RecordedCurves read_curves(const std::filesystem::path& file) {
  const nlohmann::json json = parse_json(read_file(file));
  RecordedCurves curves{.every = json.at("every").get<int64_t>()};
  for (const auto& run : json.at("runs")) {
    std::vector<double>& losses = curves.losses.emplace_back();
    for (const auto& loss : run.at("loss")) {  // null: not finite
      losses.push_back(loss.is_null() ? std::numeric_limits<double>::infinity()
                                      : loss.get<double>());
    }
    if (losses.size() != curves.losses[0].size()) throw std::runtime_error("runs of other lengths");
  }
  return curves;
}

// The numbers 0 to size - 1 in a random order.
inline std::vector<size_t> random_order(size_t size, uint64_t seed) {
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = size; i > 1; --i) {
    std::swap(order[i - 1], order[random_bits(seed, 0, i) % i]);
  }
  return order;
}

struct ReplayedSweep {
  int64_t steps = 0;                                      // trained in all
  double best = std::numeric_limits<double>::infinity();  // loss of a whole run
};

// Runs the scheduler's sweep, one trial at a time. Trial i has the curve of run order[i].
inline ReplayedSweep replay(const RecordedCurves& curves, const std::vector<size_t>& order,
                            SchedulerOptions options) {
  options.trials = std::ssize(order);
  options.steps = curves.steps();
  const auto scheduler = make_scheduler(options);
  std::vector<int64_t> reached;  // by trial
  ReplayedSweep sweep;
  for (;;) {
    const Decision next = scheduler->next();
    if (next.kind != Decision::start && next.kind != Decision::resume) return sweep;
    const bool is_new = next.kind == Decision::start;
    const int64_t trial = is_new ? std::ssize(reached) : next.trial;
    if (is_new) reached.push_back(0);
    is_new ? scheduler->started(trial, next.until, true) : scheduler->resumed(trial, next.until);
    const auto index = static_cast<size_t>(trial);
    sweep.steps += next.until - std::exchange(reached[index], next.until);
    const double loss = curves.loss(order[index], next.until);
    if (next.until == curves.steps()) sweep.best = std::min(sweep.best, loss);
    scheduler->told(trial, next.until, loss);
  }
}

// Whether asha keeps its promise on these curves: a loss within 5 % of the best whole run's, for at
// most a quarter of the steps of all whole runs.
inline bool is_as_promised(const ReplayedSweep& sweep, const RecordedCurves& curves) {
  const int64_t whole = curves.steps() * std::ssize(curves.losses);
  return sweep.best <= 1.05 * curves.best() && sweep.steps * 4 <= whole;
}

}  // namespace tanren::testing
