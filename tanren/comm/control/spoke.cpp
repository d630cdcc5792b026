#include "tanren/comm/control/end.h"

#include <fmt/format.h>

#include <unistd.h>

#include <charconv>
#include <utility>

namespace tanren {

namespace {

using SpokeClock = std::chrono::steady_clock;

class ControlSpoke final : public ControlEnd {
 public:
  ControlSpoke(Socket socket, const ControlChannel::Options& options, ControlDesk& desk,
               ControlStanding& standing)
      : lines_(std::move(socket)), options_(options), desk_(desk), standing_(standing) {}

  void run() override {
    notice_dead_machine(lines_.descriptor());
    lines_.send(fmt::format("hello {} {} {} {} {}", options_.run_id, options_.size, options_.rank,
                            ::getpid(), machine_name()));
    // Rank 0 reports the missing ranks when its timeout ends, a little later than ours.
    const auto deadline = SpokeClock::now() + options_.timeout + std::chrono::seconds(5);
    for (;;) {
      const ControlDesk::Orders orders = desk_.take();
      if (orders.state) lines_.send("state " + *orders.state);
      if (std::exchange(is_asked_, false)) {  // after the state, so that the hub has the newest
        lines_.send(fmt::format("here {}", desk_.num_operations()));
      }
      if (orders.question) {
        question_ = *orders.question;
        asked_ = SpokeClock::now();
        lines_.send("ask " + question_);
      }
      if (orders.failure) lines_.send("fail " + *orders.failure);
      if (orders.leave) lines_.send("bye");
      if (orders.stop) break;
      ControlPoll polled;
      polled.add(desk_.wake_descriptor());
      if (lines_.is_open()) polled.add(lines_.descriptor(), lines_.has_unsent());
      if (!lines_.has_unsent()) desk_.set_done(orders.number);
      polled.wait(kPause);
      hear();
      if (!question_.empty()) answer_for_hub();
      if (!is_complete_ && SpokeClock::now() >= deadline) {
        set_news(fmt::format(
            "[comm] rank {} of {} has reached the control channel of rank 0 and has "
            "had no answer in {} s",
            options_.rank, options_.size, std::chrono::duration<double>(options_.timeout).count()));
      }
    }
    take_farewell({&lines_});
  }

 private:
  static constexpr std::chrono::milliseconds kPause{250};

  void set_news(const std::string& text) {
    desk_.set_news(text);
    desk_.call_back();
  }

  // Answers this rank's question if the hub does not.
  void answer_for_hub() {
    const ControlMember hub = standing_.member(0);
    const bool is_there = lines_.is_open() && !hub.left;
    // The hub waits for the other ranks first.
    if (is_there && SpokeClock::now() < asked_ + kAnswerPatience + std::chrono::seconds(2)) return;
    const std::string phrase = split_word(question_).second;
    desk_.set_answer(is_there ? silent_text("rank 0", phrase, heard_, hub.state) : "");
    question_.clear();
  }

  void hear() {
    if (!lines_.is_open()) return;
    lines_.flush();
    for (const auto& line : lines_.received()) {
      heard_ = SpokeClock::now();
      obey(line);
    }
    if (lines_.is_open()) return;
    const ControlMember hub = standing_.member(0);
    if (!hub.left) set_news(lost_text(0, hub, lines_.why_closed()));
  }

  void obey(const std::string& line) {
    const auto [word, rest] = split_word(line);
    const std::string& text = rest;
    if (word == "state") {
      standing_.change(0, [&](ControlMember& member) { member.state = text; });
    } else if (word == "news") {
      set_news(text);
    } else if (word == "ask") {
      is_asked_ = true;
    } else if (word == "answer") {
      question_.clear();
      desk_.set_answer(text);
    } else if (word == "left") {
      int rank = 0;
      std::from_chars(text.data(), text.data() + text.size(), rank);
      if (rank <= 0 || rank >= options_.size) return;
      standing_.change(rank, [](ControlMember& member) { member.left = true; });
    } else if (word == "bye") {
      standing_.change(0, [](ControlMember& member) { member.left = true; });
    } else if (word == "welcome") {
      const auto [pid, machine] = split_word(text);
      const std::string &pid_text = pid, &machine_text = machine;
      standing_.change(0, [&](ControlMember& member) {
        std::from_chars(pid_text.data(), pid_text.data() + pid_text.size(), member.pid);
        member.machine = machine_text;
      });
      is_complete_ = true;
      desk_.set_complete();
    } else if (word == "no") {
      set_news(
          fmt::format("[comm] rank 0 does not take rank {} of {} into its run: {}; does each run "
                      "have a port of its own?",
                      options_.rank, options_.size, text));
      standing_.change(0, [](ControlMember& member) { member.left = true; });
    }
  }

  ControlLines lines_;
  const ControlChannel::Options& options_;
  ControlDesk& desk_;
  ControlStanding& standing_;
  bool is_complete_ = false;
  bool is_asked_ = false;
  std::string question_;  // of this rank, until it is answered
  SpokeClock::time_point asked_, heard_ = SpokeClock::now();
};

}  // namespace

std::unique_ptr<ControlEnd> control_spoke(Socket socket, const ControlChannel::Options& options,
                                          ControlDesk& desk, ControlStanding& standing) {
  return std::make_unique<ControlSpoke>(std::move(socket), options, desk, standing);
}

}  // namespace tanren
