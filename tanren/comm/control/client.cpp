#include "tanren/comm/control/ends.h"

#include "tanren/base/seconds.h"
#include "tanren/base/text.h"

#include <fmt/ranges.h>

#include <unistd.h>

#include <utility>

namespace tanren {

namespace {

using Clock = std::chrono::steady_clock;

class ControlClient {
 public:
  ControlClient(Socket socket, ControlMailbox& mailbox)
      : lines_(std::move(socket)), options_(mailbox.options), mailbox_(mailbox) {}

  void run() {
    notice_dead_machine(lines_.descriptor());
    lines_.send(ControlMessage::line(ControlMessage::hello, kControlVersion, options_.run_id,
                                     options_.size, options_.rank, ::getpid(), machine_name()));
    // Rank 0 reports the missing ranks when its timeout ends, a little later than ours.
    const auto deadline = Clock::now() + options_.timeout + std::chrono::seconds(5);
    for (;;) {
      const ControlMailbox::Outgoing outgoing = mailbox_.take();
      for (const auto& line : outgoing.lines) lines_.send(line);
      if (std::exchange(is_asked_, false)) {  // after the state, so that the server has the newest
        const ControlMember own = mailbox_.reply();
        lines_.send(ControlMessage::line(
            ControlMessage::here, fmt::format("{}", fmt::join(own.num_operations, ",")),
            fmt::format("{}", fmt::join(own.firsts, ",")), own.awaited.rank, own.awaited.part,
            own.awaited.number, own.awaited.what));
      }
      if (outgoing.stop) break;
      if (!lines_.has_unsent()) mailbox_.set_sent();
      std::array<pollfd, 2> polled = {{{mailbox_.wake_descriptor(), POLLIN, 0}, lines_.polled()}};
      ::poll(polled.data(), polled.size(), static_cast<int>(kControlPause.count()));
      receive();
      if (!is_complete_ && Clock::now() >= deadline) {
        set_failure(
            fmt::format("[comm] rank {} of {} has reached the control channel of rank 0 and has "
                        "had no answer in {} s",
                        options_.rank, options_.size, in_seconds(options_.timeout)));
      }
    }
    take_farewell({&lines_, 1});
  }

 private:
  void set_failure(const std::string& text) {
    mailbox_.set_failure(text);
    mailbox_.call_back();
  }

  void receive() {
    if (!lines_.is_open()) return;
    for (const auto& line : lines_.received()) {
      mailbox_.set(0, &ControlMember::heard, Clock::now());
      handle(ControlMessage(line));
    }
    if (lines_.is_open() || mailbox_.member(0).left) return;
    set_failure(mailbox_.lost_text(0, lines_.why_closed()));
  }

  void handle(ControlMessage message) {
    switch (message.word) {
      case ControlMessage::welcome: {
        const int64_t pid = message.next_number();
        mailbox_.introduce(0, pid, message.text);
        is_complete_ = true;
        mailbox_.set_complete();
        break;
      }
      case ControlMessage::no:
        set_failure(
            fmt::format("[comm] rank 0 does not take rank {} of {} into its run: {}; does each run "
                        "have a port of its own?",
                        options_.rank, options_.size, message.text));
        mailbox_.set(0, &ControlMember::left, true);
        break;
      case ControlMessage::state: mailbox_.set(0, &ControlMember::state, message.text); break;
      case ControlMessage::news: set_failure(message.text); break;
      case ControlMessage::ask: is_asked_ = true; break;
      case ControlMessage::answer: mailbox_.set_answer(message.text); break;
      case ControlMessage::bye: mailbox_.set(0, &ControlMember::left, true); break;
      case ControlMessage::left:
        if (const auto rank = message.next_number(); rank > 0 && rank < options_.size) {
          mailbox_.set(static_cast<int>(rank), &ControlMember::left, true);
        }
        break;
      default: break;
    }
  }

  ControlLines lines_;
  const ControlMailbox::Options& options_;
  ControlMailbox& mailbox_;
  bool is_complete_ = false;
  bool is_asked_ = false;
};

}  // namespace

void run_control_client(Socket socket, ControlMailbox& mailbox) {
  ControlClient(std::move(socket), mailbox).run();
}

}  // namespace tanren
