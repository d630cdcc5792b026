// Determines which accesses to device memory are ordered. The vector clock of a stream says how
// many launches of every stream end before its own next launch. An event is a copy of a clock, and
// a wait for an event joins it into the waiting stream's clock. A shadow remembers the last write
// of every byte range and the reads since. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace tanren::sim {

// For each stream of all devices, by its number: how many of its launches happened before.
using Clock = std::vector<uint64_t>;

// Afterwards all that happened before `from` also happened before `into`.
void join(Clock& into, const Clock& from);

// One launch's use of a byte range.
struct Access {
  int stream = -1;             // -1: nobody
  uint64_t launch = 0;         // the stream's own count, from 1
  const char* operation = "";  // lives as long as the process

  bool before(const Clock& clock) const {
    return stream < 0 || launch <= clock[static_cast<size_t>(stream)];
  }
};

struct Range {
  size_t begin = 0;
  size_t end = 0;
};

// The accesses of one device's memory.
class Shadow {
 public:
  // Called with an earlier access that the new one conflicts with, and whether the earlier wrote.
  using Conflict = std::function<void(const Access& earlier, bool wrote)>;

  // Adds an access. Each earlier access of `range` that is not before `clock` conflicts with it,
  // unless both read.
  void add(Range range, bool writes, const Access& now, const Clock& clock, const Conflict& report);

  // Calls `visit` with each access in `range`, and forgets it if `visit` returns true.
  void sift(Range range, const std::function<bool(const Access&)>& visit);

 private:
  struct Cell {
    size_t end = 0;
    Access write;
    std::vector<Access> reads;  // the last of each stream
  };
  void cut(size_t at);

  std::map<size_t, Cell> cells_;  // by begin; they do not overlap
};

}  // namespace tanren::sim
