// LeakDetector: finds what a loop keeps by mistake, such as a loss summed up with its graph
// (`total_loss += loss`). After `steps` steps, and again after twice as many each time, it records
// what two steps made and checks what of it is alive eight steps later: exact, needs no threshold
// on the process's memory, and names the operator. Warns once, through log(). Other steps cost a
// comparison. Called by train_loop; in a custom loop: `watch.step();` after each step. Not
// thread-safe.
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

  // After each step. `live_bytes` returns what tensors hold, such as cpu_memory_stats().live_bytes;
  // it is called at looks only. With it, tensors without a graph are watched too: it warns if both
  // recorded steps left some and live memory grew by a mebibyte or more from look to look.
  void step(const std::function<int64_t()>& live_bytes = {});

  // The warning that was logged; empty: none.
  const std::string& warning() const { return warning_; }

 private:
  void judge(const std::function<int64_t()>& live_bytes);
  void warn(const std::string& text);

  int64_t count_ = 0;
  int64_t next_look_;
  std::unique_ptr<AllocationLog> log_;
  int64_t bytes_before_ = -1;  // at the look before; below 0: there was none
  int64_t count_before_ = 0;
  std::string warning_;
};

}  // namespace tanren
