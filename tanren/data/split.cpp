#include "tanren/data/split.h"

#include "tanren/base/hash.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>
#include <utility>

namespace tanren {

namespace {

// [0, 1), with all bits that a double keeps.
double place_in_unit(uint64_t hash) { return static_cast<double>(hash >> 11) * 0x1p-53; }

std::vector<bool> below_share(const std::vector<uint64_t>& hashes, double share) {
  std::vector<bool> chosen(hashes.size());
  if (hashes.empty()) return chosen;
  const auto [least, most] = std::minmax_element(hashes.begin(), hashes.end());
  for (size_t i = 0; i < hashes.size(); ++i) {
    const bool is_below = hashes[i] == *least || place_in_unit(hashes[i]) < share;
    chosen[i] = is_below && hashes[i] != *most;
  }
  return chosen;
}

// Rows [begin, begin + size) of the sorted order. All have the same class and hash.
struct EqualRows {
  size_t begin = 0, size = 0;
};

// Chooses evaluation's groups from the groups of one class, which are sorted by hash.
std::vector<EqualRows> smallest_groups(const std::vector<EqualRows>& groups, double share) {
  size_t rows = 0;
  for (const auto& group : groups) rows += group.size;
  if (groups.size() < 2) return {};
  const auto asked = static_cast<size_t>(std::llround(share * static_cast<double>(rows)));
  const size_t wanted = std::clamp<size_t>(asked, 1, rows - 1);
  std::vector<EqualRows> taken;
  size_t count = 0;
  for (const auto& group : groups) {
    if (count >= wanted) break;
    const bool comes_nearer = group.size < 2 * (wanted - count);
    if (!comes_nearer || count + group.size == rows) continue;
    taken.push_back(group);
    count += group.size;
  }
  if (!taken.empty()) return taken;
  return {*std::min_element(groups.begin(), groups.end(),
                            [](const auto& a, const auto& b) { return a.size < b.size; })};
}

std::vector<bool> share_of_each_class(const std::vector<uint64_t>& hashes,
                                      const std::vector<int64_t>& classes, double share) {
  std::vector<size_t> order(hashes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto place = [&](size_t row) { return std::pair(classes[row], hashes[row]); };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return place(a) < place(b); });

  std::vector<bool> chosen(hashes.size());
  std::vector<EqualRows> groups;  // of one class
  for (size_t at = 0; at < order.size();) {
    size_t end = at;
    while (end < order.size() && place(order[end]) == place(order[at])) ++end;
    groups.push_back({at, end - at});
    const bool ends_class = end == order.size() || classes[order[end]] != classes[order[at]];
    at = end;
    if (!ends_class) continue;
    for (const auto& group : smallest_groups(groups, share)) {
      for (size_t i = 0; i < group.size; ++i) chosen[order[group.begin + i]] = true;
    }
    groups.clear();
  }
  return chosen;
}

}  // namespace

uint64_t split_hash(std::string_view text) { return content_hash(text); }

uint64_t split_hash(int64_t row) {
  return content_hash({reinterpret_cast<const char*>(&row), sizeof row});
}

std::vector<uint64_t> hashes_of(const std::vector<uint64_t>& hashes,
                                const std::vector<int64_t>& rows) {
  std::vector<uint64_t> kept;
  if (hashes.empty()) return kept;
  for (const int64_t row : rows) kept.push_back(hashes[static_cast<size_t>(row)]);
  return kept;
}

SplitRows split_rows(const std::vector<uint64_t>& hashes, const std::vector<int64_t>& classes,
                     double share) {
  const std::vector<bool> chosen =
      classes.empty() ? below_share(hashes, share) : share_of_each_class(hashes, classes, share);
  SplitRows rows;
  for (size_t i = 0; i < chosen.size(); ++i) {
    (chosen[i] ? rows.eval : rows.train).push_back(static_cast<int64_t>(i));
  }
  return rows;
}

std::vector<int64_t> split_rows(const std::vector<uint64_t>& hashes,
                                const std::vector<int64_t>& classes, double share, bool eval) {
  SplitRows rows = split_rows(hashes, classes, share);
  return std::move(eval ? rows.eval : rows.train);
}

std::optional<std::pair<int64_t, int64_t>> rows_of_two_classes(
    const std::vector<uint64_t>& hashes, const std::vector<int64_t>& classes) {
  std::unordered_map<uint64_t, size_t> first;  // row of each hash
  for (size_t i = 0; i < classes.size(); ++i) {
    const auto [known, is_new] = first.try_emplace(hashes[i], i);
    if (is_new || classes[known->second] == classes[i]) continue;
    return std::pair(static_cast<int64_t>(known->second), static_cast<int64_t>(i));
  }
  return std::nullopt;
}

}  // namespace tanren
