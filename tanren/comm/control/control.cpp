#include "tanren/comm/control/control.h"

#include "tanren/base/error.h"
#include "tanren/comm/cause.h"
#include "tanren/comm/control/desk.h"
#include "tanren/comm/control/end.h"

#include <fmt/format.h>

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <cerrno>
#include <csignal>
#include <exception>
#include <thread>
#include <utility>

namespace tanren {

class ControlChannel::Running {
 public:
  explicit Running(const Options& given) : options(given), standing(given.size) {}
  ~Running() {
    desk.stop();
    if (thread.joinable()) thread.join();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  void start(std::unique_ptr<ControlEnd> given) {
    end = std::move(given);
    // Only the run's own threads handle signals.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread = std::thread([this] {
      desk.begin();
      try {
        end->run();
      } catch (const std::exception& error) {
        desk.set_news(fmt::format("[comm] rank {}: its control channel ended: {}", options.rank,
                                  as_control_text(error.what())));
        desk.call_back();
      }
      end.reset();  // closes the connections, which tells the others
    });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    desk.wait_until_complete();
  }

  const Options options;
  ControlDesk desk;
  ControlStanding standing;
  std::unique_ptr<ControlEnd> end;  // used only by the thread once that runs
  std::thread thread;
};

ControlChannel::ControlChannel(std::unique_ptr<Running> running) : running_(std::move(running)) {}
ControlChannel::~ControlChannel() = default;

std::unique_ptr<ControlChannel> ControlChannel::lead(Socket listener, const Options& options) {
  auto running = std::make_unique<Running>(options);
  running->start(
      control_hub(std::move(listener), running->options, running->desk, running->standing));
  return std::unique_ptr<ControlChannel>(new ControlChannel(std::move(running)));
}

std::unique_ptr<ControlChannel> ControlChannel::join(const std::string& host, int port,
                                                     const Options& options) {
  auto running = std::make_unique<Running>(options);
  Socket socket = connected_socket(host, port, std::chrono::steady_clock::now() + options.timeout);
  running->start(
      control_spoke(std::move(socket), running->options, running->desk, running->standing));
  return std::unique_ptr<ControlChannel>(new ControlChannel(std::move(running)));
}

void ControlChannel::set_state(const std::string& state) {
  running_->desk.set_state(as_control_text(state));
}

void ControlChannel::fail(const std::string& cause) {
  running_->desk.fail(cause_text(running_->options.rank, as_control_text(cause)));
}

void ControlChannel::leave() { running_->desk.leave(); }

int64_t ControlChannel::count_operation() { return running_->desk.count_operation(); }

std::string ControlChannel::held_up_by(int64_t number, const std::string& phrase) {
  return running_->desk.ask(fmt::format("{} {}", number, as_control_text(phrase)));
}

std::optional<std::string> ControlChannel::news(std::chrono::milliseconds timeout) const {
  return running_->desk.news(timeout);
}

void ControlChannel::on_news(std::function<void(const std::string& why)> call) {
  running_->desk.set_on_news(std::move(call));
}

std::string ControlChannel::standing() const {
  return running_->standing.text(running_->options.rank == 0);
}

std::string lost_text(int rank, const ControlMember& member, const std::string& why_closed) {
  return fmt::format(
      "[comm] rank {} ({}, pid {}) is gone without a word ({}{}); its own last lines or the "
      "kernel's log say why, and a new start goes on from the last checkpoint",
      rank, member.machine, member.pid,
      member.state.empty() ? "it had not said where it was" : "last heard at " + member.state,
      why_closed.empty() ? "" : "; " + why_closed);
}

std::string silent_text(const std::string& ranks, const std::string& phrase,
                        std::chrono::steady_clock::time_point heard, const std::string& state) {
  return fmt::format(
      "{} {}: its process does not answer (stopped, or its machine is gone), and was last heard "
      "{} s ago at {}",
      ranks, phrase,
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - heard)
          .count(),
      state.empty() ? "its start" : state);
}

std::string ControlStanding::text(bool of_all) const {
  const std::lock_guard lock(mutex_);
  std::string all;
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    const ControlMember& member = members_[rank];
    if (rank > 0 && !of_all && !member.left) continue;
    all += fmt::format(
        "{}rank {} {}", rank == 0 ? "" : ", ", rank,
        member.left ? "has left" : "at " + (member.state.empty() ? "its start" : member.state));
  }
  return all;
}

void ControlPoll::add(int descriptor, bool also_writable) {
  polled_.push_back({descriptor, static_cast<short>(also_writable ? POLLIN | POLLOUT : POLLIN), 0});
}

void ControlPoll::wait(std::chrono::milliseconds timeout) {
  std::vector<pollfd> polled;
  polled.reserve(polled_.size());
  for (const Polled& one : polled_) polled.push_back({one.descriptor, one.events, 0});
  const int num = ::poll(polled.data(), polled.size(), static_cast<int>(timeout.count()));
  if (num < 0) return;  // a signal, or no memory for a moment: nothing is ready
  for (size_t i = 0; i < polled.size(); ++i) polled_[i].found = polled[i].revents;
}

bool ControlPoll::is_ready(int descriptor) const {
  for (const Polled& one : polled_) {
    if (one.descriptor == descriptor) return one.found != 0;
  }
  return false;
}

std::pair<std::string, std::string> split_word(const std::string& line) {
  const size_t blank = line.find(' ');
  if (blank == std::string::npos) return {line, ""};
  return {line.substr(0, blank), line.substr(blank + 1)};
}

void take_farewell(const std::vector<ControlLines*>& lines) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  std::vector<bool> ended(lines.size(), false);
  for (;;) {
    ControlPoll polled;
    bool is_any = false;
    for (size_t i = 0; i < lines.size(); ++i) {
      lines[i]->received();
      lines[i]->flush();
      if (!lines[i]->is_open()) continue;
      if (!lines[i]->has_unsent() && !ended[i]) {
        lines[i]->end_sending();
        ended[i] = true;
      }
      polled.add(lines[i]->descriptor(), lines[i]->has_unsent());
      is_any = true;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (!is_any || left.count() <= 0) return;
    polled.wait(left);
  }
}

}  // namespace tanren
