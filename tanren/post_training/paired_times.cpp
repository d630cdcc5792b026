#include "tanren/post_training/paired_times.h"

#include <algorithm>
#include <cmath>

namespace tanren {

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {median, values.front(), values.back()};
}

std::vector<WayTimes> paired_times(const std::vector<TimedBlock>& ways) {
  constexpr double kAllSeconds = 10, kBlockSeconds = 0.01;
  constexpr int64_t kFewest = 5, kMost = 31, kMostRepeats = 1000;
  double once = 0;
  for (const TimedBlock& way : ways) {
    (void)way(1);
    once = std::max(once, way(1));
  }
  const double wanted = std::ceil(kBlockSeconds / std::max(once, 1e-9));
  const auto repeats = static_cast<int64_t>(std::clamp(wanted, 1.0, double{kMostRepeats}));
  const double of_block = once * static_cast<double>(repeats * std::ssize(ways));
  const auto blocks = static_cast<int64_t>(
      std::clamp(kAllSeconds / std::max(of_block, 1e-9), double{kFewest}, double{kMost}));

  std::vector<std::vector<double>> seconds(ways.size()), ratios(ways.size());
  for (int64_t block = 0; block < blocks; ++block) {
    for (size_t i = 0; i < ways.size(); ++i) {
      const size_t way = block % 2 == 0 ? i : ways.size() - 1 - i;
      seconds[way].push_back(ways[way](repeats) / static_cast<double>(repeats));
    }
    for (size_t way = 0; way < ways.size(); ++way) {
      ratios[way].push_back(seconds[way].back() / seconds[0].back());
    }
  }
  std::vector<WayTimes> times;
  for (size_t way = 0; way < ways.size(); ++way) {
    times.push_back({spread_of(seconds[way]), spread_of(ratios[way])});
  }
  return times;
}

}  // namespace tanren
