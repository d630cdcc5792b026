// ShortWaits: shortens the spinning of OpenMP threads while other processes want the cores. A
// waiting libgomp thread spins for milliseconds before it sleeps: fastest if each thread has a
// core, slowest by far if the awaited thread has none. With more OpenMP threads than cores it spins
// only 100 times (GOMP_SPINCOUNT), so a watcher adds sleeping threads when its thread waits for a
// core. No result changes. Off for one thread, with OMP_WAIT_POLICY or GOMP_SPINCOUNT set, without
// the kernel's wait times, and near the thread limit. Made by run and by step drivers.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

namespace tanren {

// Decides when waits should be brief, from observations alone. It starts once a fifth of 0.2
// seconds was spent without a core; shorter bursts beside the run do not count. It then holds for a
// second, and for twice as long each time that the cores turn out to be wanted still.
class WaitRule {
 public:
  using Duration = std::chrono::duration<double>;
  // Called at each look with the time since the last look and the part of it spent waiting. Returns
  // whether waits should be brief from now on.
  bool look(Duration passed, Duration waited);

 private:
  bool brief_ = false;
  Duration left_{0}, hold_{0};
  Duration passed_{0}, waited_{0};  // since the last decision
};

// Whether `threads` more threads stay well below the limits on their number: the cgroups', and the
// user's unless that is root. `root` is the folder that holds proc/ and sys/.
bool may_add_threads(int64_t threads, const std::filesystem::path& root = "/");

// Keeps more OpenMP threads than this process has cores, asleep, as long as it lives.
class SleepingTeam {
 public:
  SleepingTeam();

 private:
  std::jthread owner_;  // opened the team, which ends with this thread
};

class ShortWaits {
 public:
  explicit ShortWaits(int64_t threads);
  // For tests: `waited` returns how long the thread has waited so far; `brief` is called on each
  // change.
  ShortWaits(std::function<std::optional<double>()> waited, std::function<void(bool)> brief);
  ~ShortWaits();
  ShortWaits(const ShortWaits&) = delete;
  ShortWaits& operator=(const ShortWaits&) = delete;

 private:
  class Watcher;
  std::unique_ptr<Watcher> watcher_;
};

}  // namespace tanren
