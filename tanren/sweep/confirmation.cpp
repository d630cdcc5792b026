#include "tanren/sweep/confirmation.h"

#include "tanren/base/text.h"
#include "tanren/sweep/leaderboard.h"
#include "tanren/sweep/study.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace tanren {

namespace {

bool is_same(const ConfirmingRun& a, const ConfirmingRun& b) {
  return a.trial == b.trial && a.seed == b.seed;
}

// The value of a run, if it has one.
std::optional<double> value_of(const Study& study, const ConfirmingRun& run) {
  const Confirmed* end = last_end_of(study.confirmed(), run);
  return end != nullptr ? end->value : std::nullopt;
}

PairedDifference difference_of(int64_t trial, const std::vector<double>& differences) {
  PairedDifference result{.trial = trial, .pairs = std::ssize(differences)};
  if (result.pairs == 0) return result;
  const auto n = static_cast<double>(result.pairs);
  double sum = 0, squares = 0;
  for (const double one : differences) sum += one;
  result.mean = sum / n;
  if (result.pairs < 2) return result;
  for (const double one : differences) squares += (one - result.mean) * (one - result.mean);
  const double error = std::sqrt(squares / (n - 1) / n);
  // If the differences are equal except for rounding, t would measure only the rounding.
  constexpr double kRounding = 1e-9;
  const bool are_equal = error <= kRounding * std::abs(result.mean);
  result.error = are_equal ? 0 : error;
  if (!are_equal) result.p = two_sided_p(result.mean / error, result.pairs - 1);
  if (are_equal && result.mean == 0) result.p = 1;
  return result;
}

// The mean to the second digit of its error.
std::string mean_text(const PairedDifference& difference) {
  constexpr int kMostDigits = 9;
  const double error = difference.error.value_or(0);
  const int digits = error > 0 ? std::max(0, 1 - static_cast<int>(std::floor(std::log10(error))))
                               : kMostDigits + 1;
  if (digits > kMostDigits) {
    const std::string mean = fmt::format("{:+.4g}", difference.mean);
    return difference.error ? mean + " ± " + short_text(error, 2) : mean;
  }
  return fmt::format("{:+.{}f} ± {:.{}f}", difference.mean, digits, error, digits);
}

}  // namespace

std::string name_of(const ConfirmingRun& run) {
  const std::string whose = run.trial ? fmt::format("trial {:04}", *run.trial) : "the file";
  return fmt::format("{}, seed {}", whose, run.seed);
}

bool is_due(const Confirmed* last_end) {
  if (last_end == nullptr) return true;
  return !last_end->value && last_end->outcome == TrialOutcome::refused && !last_end->run.alone;
}

const Confirmed* last_end_of(const std::vector<Confirmed>& ends, const ConfirmingRun& run) {
  const auto found = std::find_if(ends.rbegin(), ends.rend(),
                                  [&](const Confirmed& end) { return is_same(end.run, run); });
  return found == ends.rend() ? nullptr : &*found;
}

std::string problem_of(const Study& study, const ConfirmingRun& run) {
  const auto& records = study.records();
  if (run.trial && (*run.trial < 0 || *run.trial >= std::ssize(records))) {
    return name_of(run) + " is of a trial that never started";
  }
  if (run.trial && !records[static_cast<size_t>(*run.trial)].value) {
    return name_of(run) + " is of a trial without a value";
  }
  return is_due(last_end_of(study.confirmed(), run)) ? "" : name_of(run) + " has ended before";
}

bool is_population(const Study& study) {
  const auto& records = study.records();
  return std::any_of(records.begin(), records.end(),
                     [](const TrialRecord& record) { return record.fork_of.has_value(); });
}

std::vector<ConfirmingRun> runs_to_confirm(const Study& study, int64_t seeds,
                                           const std::function<bool(const TrialRecord&)>& is_file) {
  if (seeds <= 0 || !study.is_done() || is_population(study)) return {};
  std::vector<const TrialRecord*> best;
  for (const TrialRecord* record : ranked(study)) {
    if (std::ssize(best) == kMostConfirmed || !record->value) break;
    if (!record->same_as && !is_file(*record)) best.push_back(record);
  }
  if (best.empty()) return {};
  std::vector<ConfirmingRun> due, again;
  const auto add = [&](ConfirmingRun run) {
    const Confirmed* end = last_end_of(study.confirmed(), run);
    if (!is_due(end)) return;
    if (end != nullptr) run.alone = true;
    (end == nullptr ? due : again).push_back(run);
  };
  for (int64_t i = 1; i <= seeds; ++i) {
    // run.seed and the journal have only seeds from 0 to 2^63 - 1, so 0 follows the largest.
    const uint64_t next = study.options().seed + static_cast<uint64_t>(i);
    const auto seed = static_cast<int64_t>(next & std::numeric_limits<int64_t>::max());
    add({.trial = {}, .seed = seed});
    for (const TrialRecord* record : best) {
      add({.trial = record->id, .seed = seed, .alone = record->alone});
    }
  }
  due.insert(due.end(), again.begin(), again.end());
  return due;
}

std::vector<PairedDifference> paired_differences(const Study& study) {
  std::vector<PairedDifference> result;
  for (const TrialRecord* record : ranked(study)) {
    std::vector<double> differences;
    bool is_confirmed = false;
    for (const Confirmed& end : study.confirmed()) {
      if (end.run.trial != record->id) continue;
      is_confirmed = true;
      const auto file = value_of(study, {.trial = {}, .seed = end.run.seed});
      if (end.value && file) differences.push_back(*end.value - *file);
    }
    if (is_confirmed) result.push_back(difference_of(record->id, differences));
  }
  return result;
}

std::string text_of(const PairedDifference& difference, const std::string& metric,
                    bool lower_is_better) {
  if (difference.pairs == 0) return "no pair of runs came to a value";
  const std::string over = fmt::format("{} {} over the file", mean_text(difference), metric);
  if (!difference.p) {
    return over +
           (difference.pairs == 1
                ? " (1 seed, which has no measure of noise)"
                : fmt::format(" ({} seeds, equal differences, which have no measure of noise)",
                              difference.pairs));
  }
  const bool is_better = (difference.mean < 0) == lower_is_better;
  const std::string verdict =
      difference.is_noise() ? "within noise" : (is_better ? "better" : "worse");
  return fmt::format("{}, {} ({} seeds, p = {})", over, verdict, difference.pairs,
                     short_text(*difference.p, 2));
}

// Abramowitz and Stegun 26.7.3 and 26.7.4: finite sums for whole degrees of freedom.
double two_sided_p(double t, int64_t degrees) {
  const auto n = static_cast<double>(degrees);
  const double angle = std::atan(std::abs(t) / std::sqrt(n));
  const double sine = std::sin(angle), cosine = std::cos(angle);
  const bool is_odd = degrees % 2 == 1;
  double term = is_odd ? cosine : 1, sum = degrees == 1 ? 0 : term;
  for (int64_t i = is_odd ? 3 : 2; i + 2 <= degrees; i += 2) {
    const auto k = static_cast<double>(i);
    term *= cosine * cosine * (k - 1) / k;
    sum += term;
  }
  const double within = is_odd ? 2 / std::numbers::pi * (angle + sine * sum) : sine * sum;
  return std::clamp(1 - within, 0.0, 1.0);
}

}  // namespace tanren
