#include "tests/support/accelerator/ordering.h"

#include <algorithm>

namespace tanren::sim {

void join(Clock& into, const Clock& from) {
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
}

// Splits the cell around `at`, so that no cell crosses it.
void Shadow::cut(size_t at) {
  auto next = cells_.lower_bound(at);
  if (next == cells_.begin()) return;
  Cell& left = std::prev(next)->second;
  if (left.end <= at) return;
  cells_.emplace_hint(next, at, left);
  left.end = at;
}

void Shadow::add(Range range, bool writes, const Access& now, const Clock& clock,
                 const Conflict& report) {
  cut(range.begin);
  cut(range.end);
  for (size_t at = range.begin; at < range.end;) {
    auto found = cells_.lower_bound(at);
    if (found == cells_.end() || found->first > at) {  // a gap, up to the next cell
      const size_t end = found == cells_.end() ? range.end : std::min(range.end, found->first);
      found = cells_.emplace_hint(found, at, Cell{end, {}, {}});
    }
    Cell& cell = found->second;
    if (!cell.write.before(clock)) report(cell.write, /*wrote=*/true);
    if (writes) {
      for (const Access& read : cell.reads) {
        if (!read.before(clock)) report(read, /*wrote=*/false);
      }
      cell.write = now;
      cell.reads.clear();
    } else {
      std::erase_if(cell.reads, [&](const Access& read) { return read.stream == now.stream; });
      cell.reads.push_back(now);
    }
    at = cell.end;
  }
}

void Shadow::sift(Range range, const std::function<bool(const Access&)>& visit) {
  cut(range.begin);
  cut(range.end);
  auto found = cells_.lower_bound(range.begin);
  while (found != cells_.end() && found->first < range.end) {
    Cell& cell = found->second;
    if (cell.write.stream >= 0 && visit(cell.write)) cell.write = {};
    std::erase_if(cell.reads, visit);
    const bool empty = cell.write.stream < 0 && cell.reads.empty();
    found = empty ? cells_.erase(found) : std::next(found);
  }
}

}  // namespace tanren::sim
