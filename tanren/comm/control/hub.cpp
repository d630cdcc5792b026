#include "tanren/comm/control/end.h"

#include <fmt/format.h>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

namespace tanren {

namespace {

using HubClock = std::chrono::steady_clock;

int hub_number(const std::string& word) {  // -1 if it is no number
  int value = -1;
  const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && stop == word.data() + word.size() ? value : -1;
}

int64_t hub_count(const std::string& word) {
  int64_t value = 0;
  std::from_chars(word.data(), word.data() + word.size(), value);
  return value;
}

// "rank 1, rank 3 and 4 more"
std::string hub_names(const std::vector<int>& ranks) {
  constexpr size_t kMostNames = 8;
  std::string names;
  for (size_t i = 0; i < std::min(ranks.size(), kMostNames); ++i) {
    names += fmt::format("{}rank {}", i == 0 ? "" : ", ", ranks[i]);
  }
  if (ranks.size() > kMostNames) names += fmt::format(" and {} more", ranks.size() - kMostNames);
  return names;
}

// What an unverified peer must send to become one of the run's ranks.
struct Hello {
  std::string run_id, machine;
  int size = -1, rank = -1, pid = -1;
};
std::optional<Hello> hello_of(const std::string& line) {
  auto [word, rest] = split_word(line);
  if (word != "hello") return std::nullopt;
  Hello hello;
  std::tie(hello.run_id, rest) = split_word(rest);
  std::tie(word, rest) = split_word(rest);
  hello.size = hub_number(word);
  std::tie(word, rest) = split_word(rest);
  hello.rank = hub_number(word);
  std::tie(word, hello.machine) = split_word(rest);
  hello.pid = hub_number(word);
  return hello;
}

class ControlHub final : public ControlEnd {
 public:
  ControlHub(Socket listener, const ControlChannel::Options& options, ControlDesk& desk,
             ControlStanding& standing)
      : listener_(std::move(listener)),
        options_(options),
        desk_(desk),
        standing_(standing),
        deadline_(HubClock::now() + options.timeout) {
    members_.resize(static_cast<size_t>(options.size));
    pulses_.resize(static_cast<size_t>(options.size));
    standing_.change(0, [](ControlMember& member) {
      member.machine = machine_name();
      member.pid = ::getpid();
    });
  }

  void run() override {
    greet_if_complete();  // a run of one rank is complete at once
    for (;;) {
      const ControlDesk::Orders orders = desk_.take();
      obey(orders);
      if (orders.stop) break;
      wait();
      accept_strangers();
      hear_strangers();
      hear_members();
      answer_questions();
      if (!is_complete_ && HubClock::now() >= deadline_) tell_missing();
    }
    std::vector<ControlLines*> lines;
    for (const auto& member : members_) {
      if (member != nullptr) lines.push_back(member.get());
    }
    take_farewell(lines);
  }

 private:
  static constexpr std::chrono::milliseconds kPause{250};
  static constexpr std::chrono::seconds kStrangerTimeout{5};

  // When a rank was last heard, when it last answered, and its count of operations.
  struct Pulse {
    HubClock::time_point heard, answered;
    int64_t num_operations = 0;
  };
  // A rank's question: which ranks keep its operation `number` waiting?
  struct Question {
    int rank;
    int64_t number;
    std::string phrase;
    HubClock::time_point asked;
  };
  struct Stranger {
    ControlLines lines;
    HubClock::time_point until;
  };

  void wait() {
    polled_.clear();
    polled_.add(desk_.wake_descriptor());
    if (listener_ && HubClock::now() >= no_accept_before_) polled_.add(listener_.descriptor());
    for (const Stranger& stranger : strangers_) polled_.add(stranger.lines.descriptor());
    bool has_unsent = false;
    for (const auto& member : members_) {
      if (member == nullptr || !member->is_open()) continue;
      polled_.add(member->descriptor(), member->has_unsent());
      has_unsent = has_unsent || member->has_unsent();
    }
    if (!has_unsent) desk_.set_done(obeyed_);
    polled_.wait(kPause);
  }

  void obey(const ControlDesk::Orders& orders) {
    obeyed_ = orders.number;
    if (orders.state) {
      standing_.change(0, [&](ControlMember& member) { member.state = *orders.state; });
      tell_all("state " + *orders.state);
    }
    if (orders.failure) tell_news(*orders.failure);
    if (orders.question) take_question(0, *orders.question);
    if (orders.leave) {
      standing_.change(0, [](ControlMember& member) { member.left = true; });
      tell_all("bye");
    }
  }

  void accept_strangers() {
    if (!listener_ || !polled_.is_ready(listener_.descriptor())) return;
    constexpr size_t kManyStrangers = 256;
    for (;;) {
      Socket socket(
          ::accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        // No descriptor is left. The listener stays readable, and would keep this thread busy.
        if (errno != EAGAIN && errno != EWOULDBLOCK) no_accept_before_ = HubClock::now() + kPause;
        return;
      }
      const size_t most = kManyStrangers + members_.size();
      if (strangers_.size() >= most) strangers_.pop_front();
      strangers_.push_back({ControlLines(std::move(socket)), HubClock::now() + kStrangerTimeout});
    }
  }

  void hear_strangers() {
    for (auto one = strangers_.begin(); one != strangers_.end();) {
      const auto next = std::next(one);
      // The first line of a rank is its hello.
      const std::vector<std::string> lines = one->lines.received();
      if (!lines.empty()) {
        welcome(one, lines);
      } else if (!one->lines.is_open() || HubClock::now() >= one->until) {
        strangers_.erase(one);
      }
      one = next;
    }
    if (!is_complete_) return;
    listener_ = Socket();  // peers that come now are no ranks of this run
    strangers_.clear();
  }

  void welcome(std::list<Stranger>::iterator stranger, const std::vector<std::string>& lines) {
    const std::optional<Hello> hello = hello_of(lines.front());
    std::string refusal;
    if (!hello || hello->pid < 0) {
      refusal = "this is no way to begin";
    } else if (hello->run_id != options_.run_id) {
      refusal = "another run meets here";
    } else if (hello->size != options_.size || hello->rank < 1 || hello->rank >= options_.size) {
      refusal = fmt::format("it says rank {} of {}, and this run has {}", hello->rank, hello->size,
                            options_.size);
    } else if (members_[static_cast<size_t>(hello->rank)] != nullptr) {
      refusal = fmt::format("rank {} is here already", hello->rank);
    }
    if (!refusal.empty()) {
      stranger->lines.send("no " + refusal);
      strangers_.erase(stranger);
      return;
    }
    standing_.change(hello->rank, [&](ControlMember& member) {
      member.machine = hello->machine;
      member.pid = hello->pid;
    });
    auto& member = members_[static_cast<size_t>(hello->rank)];
    member = std::make_unique<ControlLines>(std::move(stranger->lines));
    pulses_[static_cast<size_t>(hello->rank)].heard = HubClock::now();
    strangers_.erase(stranger);
    notice_dead_machine(member->descriptor());
    if (news_) member->send("news " + *news_);
    for (size_t i = 1; i < lines.size(); ++i) obey_member(hello->rank, lines[i]);
    greet_if_complete();
  }

  void greet_if_complete() {
    for (size_t rank = 1; rank < members_.size(); ++rank) {
      if (members_[rank] == nullptr) return;
    }
    if (is_complete_ || news_) return;
    is_complete_ = true;
    const ControlMember own = standing_.member(0);
    tell_all(fmt::format("welcome {} {}", own.pid, own.machine));
    desk_.set_complete();
  }

  void hear_members() {
    for (size_t rank = 1; rank < members_.size(); ++rank) {
      const auto& lines = members_[rank];
      if (lines == nullptr || !lines->is_open()) continue;
      lines->flush();
      for (const auto& line : lines->received()) obey_member(static_cast<int>(rank), line);
      const ControlMember member = standing_.member(static_cast<int>(rank));
      if (lines->is_open() || member.left) continue;
      tell_news(lost_text(static_cast<int>(rank), member, lines->why_closed()));
    }
  }

  void obey_member(int rank, const std::string& line) {
    const auto [word, rest] = split_word(line);
    Pulse& pulse = pulses_[static_cast<size_t>(rank)];
    pulse.heard = HubClock::now();
    if (word == "state") {
      const std::string& state = rest;
      standing_.change(rank, [&](ControlMember& member) { member.state = state; });
    } else if (word == "fail") {
      tell_news(rest);
    } else if (word == "ask") {
      take_question(rank, rest);
    } else if (word == "here") {
      pulse.answered = pulse.heard;
      pulse.num_operations = hub_count(rest);
    } else if (word == "bye") {
      standing_.change(rank, [](ControlMember& member) { member.left = true; });
      tell_all(fmt::format("left {}", rank));
    }
  }

  void take_question(int rank, const std::string& text) {
    // All ranks may ask at the same time: then their questions share one round of answers.
    constexpr std::chrono::milliseconds kShared{100};
    const auto now = HubClock::now();
    if (now - asked_ > kShared) {
      asked_ = now;
      tell_all("ask");
    }
    const auto [number, phrase] = split_word(text);
    questions_.push_back({rank, hub_count(number), phrase, asked_});
  }

  void answer_questions() {
    for (auto one = questions_.begin(); one != questions_.end();) {
      const std::vector<int> silent = silent_for(*one);
      if (!silent.empty() && HubClock::now() < one->asked + kAnswerPatience) {
        ++one;
        continue;
      }
      const std::string text = silent.empty() ? behind_text(*one) : hub_silent_text(*one, silent);
      if (one->rank == 0) {
        desk_.set_answer(text);
      } else {
        members_[static_cast<size_t>(one->rank)]->send("answer " + text);
      }
      one = questions_.erase(one);
    }
  }

  std::vector<int> silent_for(const Question& question) const {
    std::vector<int> silent;
    for (int rank = 1; rank < options_.size; ++rank) {
      const bool answered = pulses_[static_cast<size_t>(rank)].answered >= question.asked;
      if (!answered && rank != question.rank && !standing_.member(rank).left) {
        silent.push_back(rank);
      }
    }
    return silent;
  }

  std::string hub_silent_text(const Question& question, const std::vector<int>& silent) const {
    const auto first = static_cast<size_t>(silent.front());
    return silent_text(hub_names(silent), question.phrase, pulses_[first].heard,
                       standing_.member(silent.front()).state);
  }

  std::string behind_text(const Question& question) const {
    int64_t fewest = question.number;
    std::vector<int> behind;
    for (int rank = 0; rank < options_.size; ++rank) {
      const int64_t num =
          rank == 0 ? desk_.num_operations() : pulses_[static_cast<size_t>(rank)].num_operations;
      if (rank == question.rank || num > fewest || standing_.member(rank).left) continue;
      if (num < fewest) behind.clear();
      fewest = num;
      behind.push_back(rank);
    }
    if (fewest >= question.number) return "";
    const std::string state = standing_.member(behind.front()).state;
    return fmt::format(
        "{} {}: it answers, and at {} it has started {} of {} operations; its own code does not "
        "come back, or its data differ",
        hub_names(behind), question.phrase, state.empty() ? "its start" : state, fewest,
        question.number);
  }

  void tell_missing() {
    std::string missing;
    for (size_t rank = 1; rank < members_.size(); ++rank) {
      if (members_[rank] == nullptr)
        missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
    }
    tell_news(fmt::format(
        "[comm] after {} s these ranks of {} have not reached the control channel of rank 0 at "
        "port {} of {}: {}; do they run, and does a firewall let them through?",
        std::chrono::duration<double>(options_.timeout).count(), options_.size, port_of(listener_),
        standing_.member(0).machine, missing));
  }

  void tell_news(const std::string& text) {
    if (news_) return;
    news_ = desk_.set_news(text);
    tell_all("news " + *news_);  // before this rank breaks its connections, which takes a while
    desk_.call_back();
  }

  void tell_all(const std::string& line) {
    for (const auto& member : members_) {
      if (member != nullptr) member->send(line);
    }
  }

  Socket listener_;
  const ControlChannel::Options& options_;
  ControlDesk& desk_;
  ControlStanding& standing_;
  const HubClock::time_point deadline_;
  HubClock::time_point no_accept_before_;
  std::list<Stranger> strangers_;
  std::vector<std::unique_ptr<ControlLines>> members_;  // by rank; rank 0's stays empty
  std::vector<Pulse> pulses_;                           // by rank
  std::list<Question> questions_;
  HubClock::time_point asked_;  // when the ranks were last asked
  std::optional<std::string> news_;
  bool is_complete_ = false;
  int64_t obeyed_ = 0;
  ControlPoll polled_;
};

}  // namespace

std::unique_ptr<ControlEnd> control_hub(Socket listener, const ControlChannel::Options& options,
                                        ControlDesk& desk, ControlStanding& standing) {
  return std::make_unique<ControlHub>(std::move(listener), options, desk, standing);
}

}  // namespace tanren
