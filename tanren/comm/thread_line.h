// ThreadLine: what all ranks of a ThreadGroup and its parts share: one lock, the first failure, the
// simulated link, the counters, and what each rank waits for. Called by thread_group.cpp and
// thread_wires.cpp.
#pragma once

#include "tanren/comm/awaited.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

struct ThreadLine {
  using Clock = std::chrono::steady_clock;
  // Both functions are called with the mutex held.
  struct Wait {
    std::function<std::string()> what;  // Awaited::what
    std::function<int()> next;          // the rank that it waits for; below 0: none
  };

  explicit ThreadLine(int world_size) : waits(static_cast<size_t>(world_size)) {}

  void cancel(const std::string& why) {
    const std::lock_guard lock(mutex);
    if (aborted.empty()) aborted = why;
    changed.notify_all();
  }
  // Counts an operation whose ranks have all started it. Returns the time when its `size` bytes
  // have crossed the link. The caller holds the mutex.
  Clock::time_point carry(int64_t size) {
    ++operations;
    bytes += size;
    if (bytes_per_second <= 0) return {};
    const std::chrono::duration<double> travel(static_cast<double>(size) / bytes_per_second);
    link_free =
        std::max(link_free, Clock::now()) + std::chrono::duration_cast<Clock::duration>(travel);
    return link_free;
  }

  // The oldest wait of each rank. The caller holds the mutex for as long as it uses the result.
  Waits all_waits() const {
    const auto of = [this](int rank) -> const std::list<Wait>& {
      return waits[static_cast<size_t>(rank)];
    };
    return {waits.size(),
            [of](int rank) { return of(rank).empty() ? -1 : of(rank).front().next(); },
            [of](int rank) { return of(rank).empty() ? "" : of(rank).front().what(); }};
  }

  double bytes_per_second = 0;  // of the link; 0: no link
  std::chrono::milliseconds timeout{};
  std::mutex mutex;
  std::condition_variable changed;
  // The members below are guarded by mutex.
  std::string aborted;  // the first failure
  Clock::time_point link_free;
  int64_t operations = 0, bytes = 0;
  std::vector<std::list<Wait>> waits;  // by rank; the newest last
};

// While it lives, `wait` is in the rank's list of waits. The lock is held at its begin and at its
// end.
class ThreadWaitScope {
 public:
  ThreadWaitScope(ThreadLine& line, std::unique_lock<std::mutex>& lock, int rank,
                  ThreadLine::Wait wait)
      : lock_(lock), waits_(line.waits[static_cast<size_t>(rank)]) {
    place_ = waits_.insert(waits_.end(), std::move(wait));
  }
  ~ThreadWaitScope() {
    if (!lock_.owns_lock()) lock_.lock();
    waits_.erase(place_);
  }
  ThreadWaitScope(const ThreadWaitScope&) = delete;
  ThreadWaitScope& operator=(const ThreadWaitScope&) = delete;

 private:
  std::unique_lock<std::mutex>& lock_;
  std::list<ThreadLine::Wait>& waits_;
  std::list<ThreadLine::Wait>::iterator place_;
};

}  // namespace tanren
