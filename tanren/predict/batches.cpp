#include "tanren/predict/batches.h"

#include "tanren/base/text.h"

#include <ATen/core/Tensor.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <utility>

namespace tanren {

namespace {

std::string shapes_of(const TensorMap& tensors) {
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    text += fmt::format("{} {} {};", name, static_cast<int>(tensor.scalar_type()),
                        fmt::join(tensor.sizes(), ","));
  }
  return text;
}

}  // namespace

std::vector<std::vector<int64_t>> batches_by_length(const std::vector<int64_t>& lengths,
                                                    int64_t size) {
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return lengths[static_cast<size_t>(a)] < lengths[static_cast<size_t>(b)];
  });
  // least[n]: the cost of the first n, the last batch of which begins at from[n].
  constexpr int64_t kCallTokens = 32;  // a call of the model costs about as much
  const size_t count = order.size();
  std::vector<int64_t> least(count + 1, 0);
  std::vector<size_t> from(count + 1, 0);
  const auto cost = [&](size_t begin, size_t end) {
    if (end - begin > static_cast<size_t>(size)) return std::numeric_limits<int64_t>::max();
    const int64_t longest = lengths[static_cast<size_t>(order[end - 1])];
    return least[begin] + static_cast<int64_t>(end - begin) * longest + kCallTokens;
  };
  // Lengths ascend. A later begin that is no worse for one end is therefore no worse for any later
  // end. So each begin is the best one for consecutive ends, and these begins form a queue.
  struct Begin {
    size_t at, first_end;
  };
  std::deque<Begin> best{{0, 1}};
  for (size_t end = 1; end <= count; ++end) {
    while (best.size() > 1 && best[1].first_end <= end) best.pop_front();
    from[end] = best.front().at;
    least[end] = cost(from[end], end);
    // `end` becomes a begin.
    const auto is_better = [&](size_t later) {
      return cost(end, later) <= cost(best.back().at, later);
    };
    while (best.back().first_end > end && is_better(best.back().first_end)) best.pop_back();
    size_t low = std::max(best.back().first_end, end) + 1, high = count + 1;
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      if (is_better(middle)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    if (low <= count) best.push_back({end, low});
  }
  std::vector<std::vector<int64_t>> batches;
  for (size_t end = count; end > 0; end = from[end]) {
    batches.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(from[end]),
                         order.begin() + static_cast<std::ptrdiff_t>(end));
  }
  std::reverse(batches.begin(), batches.end());
  return batches;
}

std::vector<std::vector<int64_t>> batches_of(const EncodedSamples& samples,
                                             const std::vector<int64_t>& places, int64_t size) {
  std::vector<std::vector<int64_t>> alike;  // that can share a batch
  std::map<std::string, size_t> group_of;
  for (const int64_t place : places) {
    const Sample& sample = samples.samples[static_cast<size_t>(place)];
    const size_t group =
        group_of.try_emplace(shapes_of(sample.tensors), alike.size()).first->second;
    if (group == alike.size()) alike.emplace_back();
    alike[group].push_back(place);
  }
  std::vector<std::vector<int64_t>> batches;
  for (const auto& group : alike) {
    std::vector<int64_t> lengths;
    for (const int64_t place : group) lengths.push_back(samples.length(place));
    for (auto& batch : batches_by_length(lengths, size)) {
      for (int64_t& place : batch) place = group[static_cast<size_t>(place)];
      batches.push_back(std::move(batch));
    }
  }
  return batches;
}

}  // namespace tanren
