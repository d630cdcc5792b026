// ShortWaits: shortens the spinning of OpenMP threads while other processes need the cores. A
// waiting libgomp thread spins for milliseconds before it sleeps. This is fastest if each thread
// has a core, and by far slowest if the awaited thread has none. With more OpenMP threads than
// cores, libgomp spins only 100 times (GOMP_SPINCOUNT). So a watcher adds sleeping threads when its
// thread waits for a core. No result changes. Off for one thread, with OMP_WAIT_POLICY or
// GOMP_SPINCOUNT set, without the kernel's wait times, and near the thread limit. Made by run and
// by step drivers.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

namespace tanren {

// Decides when waits should be brief, from observations alone. Brief waits start once a fifth of
// the last 0.2 seconds or more was spent without a core; shorter bursts do not count. They last for
// a second, and twice as long each time that the cores are still needed afterwards.
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
  std::jthread owner_;  // opens the team, and ends it when the thread ends
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
