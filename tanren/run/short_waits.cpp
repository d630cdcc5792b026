#include "tanren/run/short_waits.h"

#include "tanren/base/cgroup.h"
#include "tanren/base/core_wait.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>
#include <utility>

// Of libgomp; without -fopenmp there is no omp.h to rely on.
extern "C" void GOMP_parallel(void (*work)(void*), void* data, unsigned threads, unsigned flags);
extern "C" int omp_get_num_procs();

namespace tanren {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenLooks{50};
constexpr WaitRule::Duration kFirstHold{4}, kLongestHold{64};
constexpr double kShareThatHurts = 0.2;

// Signals are for the run's own threads.
template <class Work>
std::jthread thread_without_signals(Work work) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::jthread thread(std::move(work));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != 0;
}

}  // namespace

SleepingTeam::SleepingTeam()
    : owner_(thread_without_signals([](const std::stop_token& stop) {
        const auto threads = static_cast<unsigned>(omp_get_num_procs() + 1);
        GOMP_parallel([](void*) {}, nullptr, threads, 0);
        std::mutex mutex;
        std::unique_lock lock(mutex);
        std::condition_variable_any().wait(lock, stop, [] { return false; });
      })) {}

bool WaitRule::look(Duration passed, Duration waited) {
  if (brief_) {
    left_ -= passed;
    if (left_ <= Duration(0)) brief_ = false;
    return brief_;
  }
  if (waited < kShareThatHurts * passed) {
    // As long without trouble as the last trouble lasted: the next is a new one.
    left_ -= passed;
    if (left_ <= -hold_) hold_ = Duration(0);
    return false;
  }
  brief_ = true;
  hold_ = hold_ == Duration(0) ? kFirstHold : std::min(2 * hold_, kLongestHold);
  left_ = hold_;
  return true;
}

class ShortWaits::Watcher {
 public:
  Watcher(std::function<std::optional<double>()> waited, std::function<void(bool)> brief)
      : waited_(std::move(waited)),
        brief_(std::move(brief)),
        thread_(thread_without_signals([this](const std::stop_token& stop) { watch(stop); })) {}

 private:
  void watch(const std::stop_token& stop) {
    WaitRule rule;
    bool brief = false;
    auto at = Clock::now();
    auto before = waited_();
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any woken;
    while (before) {
      woken.wait_for(lock, stop, kBetweenLooks, [] { return false; });
      if (stop.stop_requested()) return;
      const auto now = Clock::now();
      const auto waited = waited_();
      if (!waited) return;
      const bool wanted = rule.look(now - at, WaitRule::Duration(*waited - *before));
      if (wanted != std::exchange(brief, wanted)) brief_(wanted);
      at = now;
      before = waited;
    }
  }

  std::function<std::optional<double>()> waited_;
  std::function<void(bool)> brief_;
  std::jthread thread_;  // last: it uses the others
};

ShortWaits::ShortWaits(std::function<std::optional<double>()> waited,
                       std::function<void(bool)> brief)
    : watcher_(std::make_unique<Watcher>(std::move(waited), std::move(brief))) {}

ShortWaits::ShortWaits(int64_t threads) {
  if (threads < 2 || is_set("OMP_WAIT_POLICY") || is_set("GOMP_SPINCOUNT")) return;
  const std::filesystem::path file = "/proc/self/task/" + std::to_string(::gettid()) + "/schedstat";
  watcher_ =
      std::make_unique<Watcher>([file] { return seconds_waited(kernel_line(file)); },
                                [team = std::shared_ptr<SleepingTeam>()](bool brief) mutable {
                                  team = brief ? std::make_shared<SleepingTeam>() : nullptr;
                                });
}

ShortWaits::~ShortWaits() = default;

}  // namespace tanren
