// ThreadLine: what all ranks of a ThreadGroup and its parts share: one lock, the first failure, the
// simulated link and the counters. Called by thread_group.cpp and thread_wires.cpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

namespace tanren {

struct ThreadLine {
  using Clock = std::chrono::steady_clock;

  void cancel(const std::string& why) {
    const std::lock_guard lock(mutex);
    if (aborted.empty()) aborted = why;
    changed.notify_all();
  }
  // Counts an operation whose ranks have all started it. Returns when its `size` bytes are over the
  // link. The caller holds the mutex.
  Clock::time_point carry(int64_t size) {
    ++operations;
    bytes += size;
    if (bytes_per_second <= 0) return {};
    const std::chrono::duration<double> travel(static_cast<double>(size) / bytes_per_second);
    link_free =
        std::max(link_free, Clock::now()) + std::chrono::duration_cast<Clock::duration>(travel);
    return link_free;
  }

  double bytes_per_second = 0;  // of the link; 0: no link
  std::chrono::milliseconds timeout{};
  std::mutex mutex;
  std::condition_variable changed;
  // The members below are guarded by mutex.
  std::string aborted;  // the first failure
  Clock::time_point link_free;
  int64_t operations = 0, bytes = 0;
};

}  // namespace tanren
