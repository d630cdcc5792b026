// ShortWaits: while it lives, the threads of an operator wait for one another briefly where other
// processes want the cores. libgomp lets a thread that waits spin for milliseconds before it sleeps: the
// fastest way where each thread has a core, and the slowest by far where the one that it waits for
// has none. With more OpenMP threads than cores libgomp spins a hundred times only (its manual,
// GOMP_SPINCOUNT), so a watcher that finds the calling thread waiting for a core adds threads that sleep.
// No number changes. Does nothing for one thread, where OMP_WAIT_POLICY or GOMP_SPINCOUNT is set,
// where the kernel does not say how long a thread waited, or where there may hardly be more threads.
// Made by run and by whoever drives steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

namespace tanren {

// When to wait briefly, as a pure function of what is seen: from a fifth of 0.2 seconds without a core on,
// as something that starts and ends beside the run is no reason; then for a second, and for twice as
// long each time that the cores turn out to be wanted still.
class WaitRule {
 public:
  using Duration = std::chrono::duration<double>;
  // Told at each look: how much time went by since the last one and how much of it was waited.
  // Whether to wait briefly from here on.
  bool look(Duration passed, Duration waited);

 private:
  bool brief_ = false;
  Duration left_{0}, hold_{0};
  Duration passed_{0}, waited_{0};  // since the last decision
};

// Whether so many threads more stay well below what limits their number: that of the cgroups, and for
// others than root that of the user. `root` is where proc/ and sys/ lie.
bool may_add_threads(int64_t threads, const std::filesystem::path& root = "/");

// More OpenMP threads than this process has cores, asleep as long as it lives.
class SleepingTeam {
 public:
  SleepingTeam();

 private:
  std::jthread owner_;  // opened the team, which ends with it
};

class ShortWaits {
 public:
  explicit ShortWaits(int64_t threads);
  // For tests: `waited` tells how long the thread has waited so far, `brief` hears each change.
  ShortWaits(std::function<std::optional<double>()> waited, std::function<void(bool)> brief);
  ~ShortWaits();
  ShortWaits(const ShortWaits&) = delete;
  ShortWaits& operator=(const ShortWaits&) = delete;

 private:
  class Watcher;
  std::unique_ptr<Watcher> watcher_;
};

}  // namespace tanren
