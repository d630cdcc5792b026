// Passes orders from a run's threads to the thread of its control channel, and failures ("news")
// back. Invariant: the first failure stays, and the callback gets it once. Thread-safe, torch-free.
// Called by control.cpp and the two ends of the channel.
#pragma once

#include "tanren/comm/sockets.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace tanren {

class ControlDesk {
 public:
  using OnNews = std::function<void(const std::string& why)>;

  // Orders to the channel's thread; each is handed over once.
  struct Orders {
    int64_t number = 0;
    std::optional<std::string> state;
    std::optional<std::string> failure;
    std::optional<std::string> question;
    bool leave = false;
    bool stop = false;
  };

  ControlDesk();

  // Called by the run's threads. fail and leave return when the order is on its way, or after a
  // second.
  void set_state(const std::string& state);
  void fail(const std::string& text);  // becomes this rank's own news, without the callback
  void leave();
  void stop();
  void set_on_news(OnNews call);
  int64_t count_operation() { return ++num_operations_; }
  // The answer of the channel's thread. Empty if none comes in time or a failure is known.
  std::string ask(const std::string& question);
  std::optional<std::string> news(std::chrono::milliseconds timeout) const;
  // Waits until the channel is complete: all ranks have connected. CommError with the failure that
  // came instead.
  void wait_until_complete() const;

  // Called by the channel's thread, begin() first.
  void begin();
  Orders take();
  int wake_descriptor() const { return wake_.descriptor(); }
  void set_done(int64_t number);  // the orders up to `number`
  void set_complete();
  int64_t num_operations() const { return num_operations_; }
  void set_answer(const std::string& text);
  std::string set_news(const std::string& text);  // returns the first failure, which may be another
  // Calls the callback, once, with a failure that is not this rank's own. May take a while.
  void call_back();

 private:
  void wake() const;
  void wait_until_done(std::unique_lock<std::mutex>& lock);

  Socket wake_;
  std::atomic<int64_t> num_operations_{0};
  std::mutex ask_mutex_;  // one question at a time; taken before mutex_
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  // Guarded by mutex_.
  Orders next_;
  int64_t done_ = 0;
  bool complete_ = false;
  std::optional<std::string> answer_;
  std::optional<std::string> news_;
  bool is_own_news_ = false;
  std::thread::id thread_;
  std::chrono::steady_clock::time_point state_sent_;

  std::mutex call_mutex_;  // held while the callback runs; taken before mutex_
  OnNews call_;
};

}  // namespace tanren
