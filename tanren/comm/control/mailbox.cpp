#include "tanren/comm/control/mailbox.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/comm/cause.h"
#include "tanren/comm/control/messages.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

namespace tanren {

namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

ControlMailbox::ControlMailbox(const Options& given)
    : options(given),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      members_(static_cast<size_t>(given.size)) {
  if (!wake_) {
    throw CommError(std::string("[comm] no descriptor for the control channel: ") +
                    std::strerror(errno) + "; raise `ulimit -n`");
  }
}

void ControlMailbox::set_state(const std::string& state) {
  constexpr std::chrono::milliseconds kPause{200};
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  state_ = as_control_text(state);
  if (now - state_sent_ < kPause) return;  // sent with the next one, or in the thread's next round
  state_sent_ = now;
  wake();
}

void ControlMailbox::fail(const std::string& cause) {
  std::unique_lock lock(mutex_);
  if (failure_) return;  // the others know already
  failure_ = cause_text(options.rank, as_control_text(cause));
  is_own_failure_ = true;
  changed_.notify_all();
  post(lock, ControlMessage::line(ControlMessage::fail, *failure_));
}

void ControlMailbox::leave() {
  std::unique_lock lock(mutex_);
  post(lock, ControlMessage::line(ControlMessage::bye));
}

void ControlMailbox::join(const ControlPart& part) {
  const std::lock_guard lock(mutex_);
  if (part.index >= firsts_.size()) firsts_.resize(part.index + 1, -1);
  firsts_[part.index] = part.first();
}

int64_t ControlMailbox::count_operation(size_t part) {
  const std::lock_guard lock(mutex_);
  if (part >= num_operations_.size()) num_operations_.resize(part + 1);
  return ++num_operations_[part];
}

std::string ControlMailbox::held_up_by(int64_t number, const std::string& phrase,
                                       const ControlPart& part) {
  return ask(ControlMessage::line(ControlMessage::ask, number, part.index, part.first(), -1),
             phrase);
}

std::string ControlMailbox::held_up_by_message(int rank, const std::string& phrase) {
  return ask(ControlMessage::line(ControlMessage::ask, 0, 0, 0, rank), phrase);
}

std::string ControlMailbox::ask(const std::string& question, const std::string& phrase) {
  constexpr std::chrono::seconds kTimeout = kAnswerTimeout + std::chrono::seconds(2);
  const std::lock_guard asks(ask_mutex_);
  std::unique_lock lock(mutex_);
  answer_.reset();
  lines_.push_back(fmt::format("{} {}", question, as_control_text(phrase)));
  wake();
  const bool is_client = options.rank != 0;
  const bool is_over = changed_.wait_for(
      lock, kTimeout, [&] { return answer_ || failure_ || (is_client && members_[0].left); });
  if (is_over || !is_client) return answer_.value_or("");
  lock.unlock();
  return silent_text({0}, phrase);
}

ControlMailbox::AwaitScope::AwaitScope(ControlMailbox* mailbox, Awaited awaited)
    : mailbox_(mailbox) {
  if (mailbox_ == nullptr) return;
  awaited.what = as_control_text(awaited.what);
  const std::lock_guard lock(mailbox_->mutex_);
  place_ = mailbox_->awaited_.insert(mailbox_->awaited_.end(), std::move(awaited));
}

ControlMailbox::AwaitScope::~AwaitScope() {
  if (mailbox_ == nullptr) return;
  const std::lock_guard lock(mailbox_->mutex_);
  mailbox_->awaited_.erase(place_);
}

ControlMember ControlMailbox::reply() const {
  const std::lock_guard lock(mutex_);
  ControlMember own = members_[static_cast<size_t>(options.rank)];
  own.num_operations = num_operations_;
  own.firsts = firsts_;
  // The oldest wait.
  own.awaited = awaited_.empty() ? Awaited() : awaited_.front();
  return own;
}

std::optional<std::string> ControlMailbox::failure(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [&] { return failure_.has_value(); });
  return failure_;
}

void ControlMailbox::on_failure(OnFailure call) {
  {
    const std::lock_guard calls(call_mutex_);
    call_ = std::move(call);
  }
  call_back();
}

std::string ControlMailbox::standing() const {
  const std::lock_guard lock(mutex_);
  std::string all;
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    const ControlMember& member = members_[rank];
    if (rank > 0 && options.rank != 0 && !member.left) continue;
    all += fmt::format("{}rank {} {}", rank == 0 ? "" : ", ", rank,
                       member.left ? "has left" : "at " + place_in_run(member.state));
  }
  return all;
}

void ControlMailbox::wait_until_complete() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return complete_ || failure_; });
  if (!complete_) throw CommError(*failure_);
}

ControlMailbox::Outgoing ControlMailbox::take() {
  eventfd_t wakes = 0;
  ::eventfd_read(wake_.descriptor(), &wakes);
  const std::lock_guard lock(mutex_);
  ++num_taken_;
  Outgoing outgoing{std::exchange(lines_, {}), stop_};
  if (const auto state = std::exchange(state_, std::nullopt)) {
    outgoing.lines.insert(outgoing.lines.begin(),
                          ControlMessage::line(ControlMessage::state, *state));
  }
  return outgoing;
}

std::string ControlMailbox::set_failure(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = text;
  changed_.notify_all();
  return *failure_;
}

void ControlMailbox::call_back() {
  const std::lock_guard calls(call_mutex_);
  std::unique_lock lock(mutex_);
  if (!failure_ || is_own_failure_ || !call_) return;
  const std::string why = *failure_;
  lock.unlock();
  try {
    std::exchange(call_, nullptr)(why);
  } catch (const std::exception&) {
    // The failure is stored: callers that the callback did not reach get it from failure().
  }
}

std::vector<ControlMember> ControlMailbox::members() const {
  const std::lock_guard lock(mutex_);
  return members_;
}

void ControlMailbox::introduce(int rank, int64_t pid, const std::string& machine) {
  set(rank, &ControlMember::machine, machine);
  set(rank, &ControlMember::heard, Clock::now());
  set(rank, &ControlMember::pid, pid);
}

std::string ControlMailbox::lost_text(int rank, const std::string& why_closed) const {
  const ControlMember lost = member(rank);
  return fmt::format(
      "[comm] rank {} ({}, pid {}) is gone without a word ({}{}); its own last lines or the "
      "kernel's log say why, and a new start resumes from the last checkpoint",
      rank, lost.machine, lost.pid,
      lost.state.empty() ? "it had not said where it was" : "last heard at " + lost.state,
      why_closed.empty() ? "" : "; " + why_closed);
}

std::string ControlMailbox::silent_text(const std::vector<int>& ranks,
                                        const std::string& phrase) const {
  const ControlMember first = member(ranks.front());
  return fmt::format(
      "{} {}: its process does not answer (stopped, or its machine is gone), and was last heard "
      "{} s ago at {}",
      names_of(ranks), phrase,
      std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - first.heard).count(),
      place_in_run(first.state));
}

// Returns when the line is on its way, or after a second.
void ControlMailbox::post(std::unique_lock<std::mutex>& lock, const std::string& line) {
  lines_.push_back(line);
  const int64_t number = num_taken_ + 1;
  wake();
  changed_.wait_for(lock, std::chrono::seconds(1), [&] { return num_sent_ >= number; });
}

std::string names_of(const std::vector<int>& ranks) {
  constexpr size_t kMostNames = 8;
  const size_t num = std::min(ranks.size(), kMostNames);
  std::string names =
      fmt::format("rank {}", fmt::join(ranks.data(), ranks.data() + num, ", rank "));
  if (ranks.size() > num) names += fmt::format(" and {} more", ranks.size() - num);
  return names;
}

}  // namespace tanren
