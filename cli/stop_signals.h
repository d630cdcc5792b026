// Signals that ask a run to stop. The first SIGINT, SIGTERM or SIGHUP asks it to save and stop.
// Later ones count as repetitions, because many senders signal twice: `timeout` signals its child
// and the group, a batch system signals all processes of a job, a shell does so when its terminal
// closes. Only a second SIGINT, from a person who does not want to wait, ends the run at once. Used
// by run.cpp, launch.cpp and the sweep.
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>

namespace tanren::cli {

// Lock-free: a handler may use it.
class Interrupts {
 public:
  // Whether `signal` is a SIGINT that comes half a second or more after the first: automatic
  // repetitions come sooner, a person's later.
  bool is_second(int signal) {
    if (signal != SIGINT) return false;
    constexpr std::chrono::milliseconds kOneWish{500};
    const int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
    int64_t first = 0;
    if (first_.compare_exchange_strong(first, now)) return false;
    return std::chrono::steady_clock::duration(now - first) >= kOneWish;
  }

 private:
  std::atomic<int64_t> first_{0};  // clock ticks of the first SIGINT; 0: none yet
};

// Whether SIGHUP is ignored, as under nohup. The caller leaves it ignored.
inline bool hang_up_is_ignored() {
  struct sigaction action {};
  return ::sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace tanren::cli
