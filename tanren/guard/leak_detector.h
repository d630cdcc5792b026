// LeakDetector: finds what a loop keeps by mistake, such as a loss summed up with its graph
// (`total_loss += loss`). The first look is after `steps` steps; each later look is after twice as
// many. A look records what two steps made and checks eight steps later what of it is still alive.
// This is exact, needs no threshold on the process's memory, and names the operator. Warns once,
// through log(). Steps outside of a look cost one comparison. Called by train_loop; in a custom
// loop: `watch.step();` after each step. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace tanren {

class AllocationLog;

class LeakDetector {
 public:
  // steps: before the first look; 0: off.
  explicit LeakDetector(int64_t steps = 64);
  ~LeakDetector();
  LeakDetector(LeakDetector&&) noexcept;
  LeakDetector& operator=(LeakDetector&&) noexcept;

  // Call this after each step. `live_bytes` returns the bytes that tensors hold, for example
  // cpu_memory_stats().live_bytes. It is called at looks only. If it is given, tensors without a
  // graph are checked too: the detector warns if both recorded steps left some and live memory grew
  // by a mebibyte or more since the previous look.
  void step(const std::function<int64_t()>& live_bytes = {});

  // The warning that was logged; empty: none.
  const std::string& warning() const { return warning_; }

 private:
  void judge(const std::function<int64_t()>& live_bytes);
  void warn(const std::string& text);

  int64_t count_ = 0;
  int64_t next_look_;
  std::unique_ptr<AllocationLog> log_;
  int64_t bytes_before_ = -1;  // live bytes at the previous look; below 0: none yet
  int64_t count_before_ = 0;
  std::string warning_;
};

}  // namespace tanren
