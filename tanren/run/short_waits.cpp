#include "tanren/run/short_waits.h"

#include "tanren/base/cgroup.h"
#include "tanren/base/core_wait.h"
#include "tanren/base/text.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

// From libgomp; without -fopenmp omp.h may be missing.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" void GOMP_parallel(void (*work)(void*), void* data, unsigned threads, unsigned flags);
extern "C" int omp_get_num_procs();

namespace tanren {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenLooks{50};
constexpr WaitRule::Duration kFirstHold{1}, kLongestHold{64};
constexpr WaitRule::Duration kLongerThanABurst{0.2};
constexpr double kShareThatHurts = 0.2;

class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

// Signals are for the run's own threads. system_error if no more threads are allowed.
template <class Work>
std::jthread thread_without_signals(Work work) {
  const NoSignals no_signals;
  return std::jthread(std::move(work));
}

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != 0;
}

int64_t size_of_team() { return omp_get_num_procs() + 1; }

}  // namespace

bool may_add_threads(int64_t threads, const std::filesystem::path& root) {
  constexpr int64_t kLeft = 64;  // for other threads
  for (const auto& folder : cgroup_folders(root)) {
    const auto most = kernel_number(folder / "pids.max");
    const auto now = kernel_number(folder / "pids.current");
    if (most && now && *now + threads + kLeft > *most) return false;
  }
  rlimit own{};
  const bool is_limited =
      ::getuid() != 0 && ::getrlimit(RLIMIT_NPROC, &own) == 0 && own.rlim_cur != RLIM_INFINITY;
  if (!is_limited) return true;
  // "0.20 0.18 0.12 1/80 11206": the machine's thread count (80) is an upper bound for any user's.
  const std::string load = kernel_line(root / "proc/loadavg");
  const size_t all = load.find('/');
  if (all == std::string::npos) return false;
  const int64_t now = std::strtoll(load.c_str() + all + 1, nullptr, 10);
  return static_cast<rlim_t>(now + threads + kLeft) <= own.rlim_cur;
}

SleepingTeam::SleepingTeam()
    : owner_(thread_without_signals([](const std::stop_token& stop) {
        GOMP_parallel([](void*) {}, nullptr, static_cast<unsigned>(size_of_team()), 0);
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
  passed_ += passed;
  waited_ += waited;
  const Duration period = std::max(passed_, kLongerThanABurst);
  const bool hurts = waited_ >= kShareThatHurts * period;
  if (hurts || passed_ >= period) passed_ = waited_ = Duration(0);
  if (!hurts) {
    // If waits were rare for as long as the last hold, the next hold has the first length again.
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
        thread_(thread_without_signals([this](const std::stop_token& stop) {
          try {
            watch(stop);
          } catch (...) {  // no more threads or memory: waits stay as they are
          }
        })) {}

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
  std::jthread thread_;  // last: it uses the other members
};

ShortWaits::ShortWaits(std::function<std::optional<double>()> waited,
                       std::function<void(bool)> brief)
    : watcher_(std::make_unique<Watcher>(std::move(waited), std::move(brief))) {}

ShortWaits::ShortWaits(int64_t threads) {
  if (threads < 2 || is_set("OMP_WAIT_POLICY") || is_set("GOMP_SPINCOUNT")) return;
  const std::filesystem::path file = fmt::format("/proc/self/task/{}/schedstat", ::gettid());
  const auto wait = [team = std::shared_ptr<SleepingTeam>()](bool brief) mutable {
    team.reset();
    // libgomp ends the process if it cannot get its threads.
    if (brief && may_add_threads(size_of_team())) team = std::make_shared<SleepingTeam>();
  };
  try {
    watcher_ =
        std::make_unique<Watcher>([file] { return seconds_waited(kernel_line(file)); }, wait);
  } catch (const std::system_error&) {  // no thread to watch with
  }
}

ShortWaits::~ShortWaits() = default;

}  // namespace tanren
