#include "tanren/sweep/page_trials.h"

#include "tanren/base/one_line.h"
#include "tanren/sweep/leaderboard.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tanren {

namespace {

constexpr size_t kMostShown = 1000, kLeastShown = 50, kMostCurves = 200;
constexpr size_t kMostValues = 8000;  // of the shown trials together

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

}  // namespace

std::vector<size_t> first_and_spread(size_t count, size_t most) {
  std::vector<size_t> numbers;
  if (count <= most) {
    for (size_t i = 0; i < count; ++i) numbers.push_back(i);
    return numbers;
  }
  const size_t first = most / 2, others = most - first, rest = count - first;
  for (size_t i = 0; i < first; ++i) numbers.push_back(i);
  for (size_t i = 1; i <= others; ++i) numbers.push_back(first + rest * i / others - 1);
  return numbers;
}

std::vector<const TrialRecord*> shown_trials(const Study& study) {
  const size_t dimensions = std::max<size_t>(1, study.space().size());
  const size_t most = std::clamp(kMostValues / dimensions, kLeastShown, kMostShown);
  const std::vector<const TrialRecord*> order = ranked(study);
  std::vector<const TrialRecord*> shown;
  for (const size_t i : first_and_spread(order.size(), most)) shown.push_back(order[i]);
  return shown;
}

std::vector<const TrialRecord*> curve_trials(const Study& study) {
  std::vector<const TrialRecord*> own;
  for (const TrialRecord* record : shown_trials(study)) {
    if (!record->same_as) own.push_back(record);
  }
  std::vector<const TrialRecord*> chosen;
  for (const size_t i : first_and_spread(own.size(), kMostCurves)) chosen.push_back(own[i]);
  return chosen;
}

Evaluations thinned(const Evaluations& evaluations, size_t most, bool lower_is_better) {
  const size_t count = evaluations.size();
  if (count <= most || most < 2) return evaluations;
  std::vector<size_t> kept;
  for (size_t i = 0; i < most; ++i) kept.push_back(i * (count - 1) / (most - 1));
  size_t best = 0;
  const auto cost = [&](size_t i) {
    const double value = evaluations[i].second;
    if (std::isnan(value)) return std::numeric_limits<double>::infinity();
    return lower_is_better ? value : -value;
  };
  for (size_t i = 1; i < count; ++i) {
    if (cost(i) < cost(best)) best = i;
  }
  kept.push_back(best);
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  Evaluations result;
  for (const size_t i : kept) result.push_back(evaluations[i]);
  return result;
}

// Colours that the colour-blind tell apart (Okabe and Ito).
const std::vector<TrialLook>& trial_looks() {
  static const std::vector<TrialLook> looks = {
      {"finished", "#0072b2", ""},
      {"stopped paused", "#b0a080", ""},
      {"running waiting", "#009e73", "8 3"},
      {"diverged", "#cc79a7", "2 3"},
      {"out_of_memory too_large refused crashed hung failed", "#d55e00", "5 2 1 2"}};
  return looks;
}

const TrialLook& look_of(std::string_view state) {
  const auto& looks = trial_looks();
  const auto found = std::find_if(looks.begin(), looks.end(), [&](const TrialLook& look) {
    return has_word(look.states, state);
  });
  return found == looks.end() ? looks.back() : *found;
}

std::string page_text(std::string_view text, size_t most) {
  std::string shown = utf8_text(one_line(text));
  if (shown.size() <= most) return shown;
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(shown[end]) & 0xC0) == 0x80) --end;
  return shown.substr(0, end) + "…";
}

}  // namespace tanren
