#include "tanren/comm/control/desk.h"

#include "tanren/base/error.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

namespace tanren {

ControlDesk::ControlDesk() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  next_.number = 1;
  if (!wake_) {
    throw CommError(std::string("[comm] no descriptor for the control channel: ") +
                    std::strerror(errno) + "; raise `ulimit -n`");
  }
}

void ControlDesk::set_state(const std::string& state) {
  constexpr std::chrono::milliseconds kPause{200};
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  next_.state = state;
  if (now - state_sent_ < kPause) return;  // sent with the next one, or in the thread's next round
  state_sent_ = now;
  wake();
}

void ControlDesk::fail(const std::string& text) {
  std::unique_lock lock(mutex_);
  if (news_) return;  // the others know already
  news_ = text;
  is_own_news_ = true;
  changed_.notify_all();
  next_.failure = text;
  wait_until_done(lock);
}

void ControlDesk::leave() {
  std::unique_lock lock(mutex_);
  next_.leave = true;
  wait_until_done(lock);
}

std::string ControlDesk::ask(const std::string& question) {
  constexpr std::chrono::seconds kTimeout{8};  // longer than either end takes
  const std::lock_guard asks(ask_mutex_);
  std::unique_lock lock(mutex_);
  if (thread_ == std::this_thread::get_id()) return "";
  answer_.reset();
  next_.question = question;
  wake();
  changed_.wait_for(lock, kTimeout, [&] { return answer_ || news_; });
  return answer_.value_or("");
}

void ControlDesk::stop() {
  const std::lock_guard lock(mutex_);
  next_.stop = true;
  wake();
}

void ControlDesk::set_on_news(OnNews call) {
  const std::lock_guard calls(call_mutex_);
  call_ = std::move(call);
  std::string why;
  {
    const std::lock_guard lock(mutex_);
    if (!news_ || is_own_news_) return;
    why = *news_;
  }
  if (call_) std::exchange(call_, nullptr)(why);
}

std::optional<std::string> ControlDesk::news(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  if (timeout.count() > 0 && thread_ != std::this_thread::get_id()) {
    changed_.wait_for(lock, timeout, [&] { return news_.has_value(); });
  }
  return news_;
}

void ControlDesk::wait_until_complete() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return complete_ || news_; });
  if (!complete_) throw CommError(*news_);
}

void ControlDesk::begin() {
  const std::lock_guard lock(mutex_);
  thread_ = std::this_thread::get_id();
}

ControlDesk::Orders ControlDesk::take() {
  uint64_t wakes = 0;
  while (::read(wake_.descriptor(), &wakes, sizeof wakes) < 0 && errno == EINTR) {
  }
  const std::lock_guard lock(mutex_);
  Orders orders = std::exchange(next_, {});
  next_.number = orders.number + 1;
  return orders;
}

void ControlDesk::set_done(int64_t number) {
  const std::lock_guard lock(mutex_);
  if (number == done_) return;
  done_ = number;
  changed_.notify_all();
}

void ControlDesk::set_complete() {
  const std::lock_guard lock(mutex_);
  complete_ = true;
  changed_.notify_all();
}

void ControlDesk::set_answer(const std::string& text) {
  const std::lock_guard lock(mutex_);
  answer_ = text;
  changed_.notify_all();
}

std::string ControlDesk::set_news(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (news_) return *news_;
  news_ = text;
  changed_.notify_all();
  return text;
}

void ControlDesk::call_back() {
  const std::lock_guard calls(call_mutex_);
  std::string why;
  {
    const std::lock_guard lock(mutex_);
    if (!news_ || is_own_news_) return;
    why = *news_;
  }
  if (!call_) return;
  try {
    std::exchange(call_, nullptr)(why);
  } catch (const std::exception&) {
    // The failure is stored: callers that the callback did not reach get it from news().
  }
}

void ControlDesk::wake() const {
  const uint64_t one = 1;
  while (::write(wake_.descriptor(), &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void ControlDesk::wait_until_done(std::unique_lock<std::mutex>& lock) {
  const int64_t number = next_.number;
  wake();
  if (thread_ == std::this_thread::get_id()) return;  // called from the callback
  changed_.wait_for(lock, std::chrono::seconds(1), [&] { return done_ >= number; });
}

}  // namespace tanren
