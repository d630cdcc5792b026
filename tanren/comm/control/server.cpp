#include "tanren/comm/control/ends.h"

#include "tanren/base/seconds.h"
#include "tanren/base/text.h"

#include <fmt/ranges.h>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

namespace tanren {

namespace {

using Clock = std::chrono::steady_clock;

class ControlServer {
 public:
  ControlServer(Socket listener, ControlMailbox& mailbox)
      : listener_(std::move(listener)),
        options_(mailbox.options),
        mailbox_(mailbox),
        deadline_(Clock::now() + options_.timeout),
        ranks_(static_cast<size_t>(options_.size)) {
    mailbox_.introduce(0, ::getpid(), machine_name());
  }

  void run() {
    welcome_if_complete();  // a run of one rank is complete at once
    for (;;) {
      const ControlMailbox::Outgoing outgoing = mailbox_.take();
      for (const auto& line : outgoing.lines) handle(0, line);
      if (outgoing.stop) break;
      wait();
      accept_peers();
      verify_peers();
      receive_from_ranks();
      answer_questions();
      if (!is_complete_ && Clock::now() >= deadline_) report_missing();
    }
    take_farewell(ranks_);
  }

 private:
  // A rank's question: which ranks keep its operation `number`, or a message of rank `awaited`,
  // waiting?
  struct Question {
    int rank;
    int64_t number;
    size_t part;
    int64_t first;  // the lowest rank of the part
    int awaited;    // below 0: none
    std::string phrase;
    Clock::time_point asked;
  };
  // A peer that has connected and has not said which rank it is.
  struct UnverifiedPeer {
    ControlLines lines;
    Clock::time_point until;
  };

  void wait() {
    std::vector<pollfd> polled = {{mailbox_.wake_descriptor(), POLLIN, 0}};
    if (may_accept()) polled.push_back({listener_.descriptor(), POLLIN, 0});
    for (const UnverifiedPeer& peer : unverified_) polled.push_back(peer.lines.polled());
    for (const ControlLines& lines : ranks_) polled.push_back(lines.polled());
    if (std::none_of(ranks_.begin(), ranks_.end(), [](auto& rank) { return rank.has_unsent(); })) {
      mailbox_.set_sent();
    }
    ::poll(polled.data(), polled.size(), static_cast<int>(kControlPause.count()));
  }

  bool may_accept() const { return listener_ && Clock::now() >= no_accept_before_; }

  void accept_peers() {
    constexpr std::chrono::seconds kHelloTimeout{5};
    constexpr size_t kManyPeers = 256;
    while (may_accept()) {
      Socket socket(
          ::accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        // No descriptor is left. The listener stays readable, and would keep this thread busy.
        if (errno != EAGAIN && errno != EWOULDBLOCK) {
          no_accept_before_ = Clock::now() + kControlPause;
        }
        return;
      }
      if (unverified_.size() >= kManyPeers + ranks_.size()) unverified_.pop_front();
      unverified_.push_back({ControlLines(std::move(socket)), Clock::now() + kHelloTimeout});
    }
  }

  void verify_peers() {
    unverified_.remove_if([this](UnverifiedPeer& peer) { return is_settled(peer); });
    if (!is_complete_) return;
    listener_ = Socket();  // peers that come now are no ranks of this run
    unverified_.clear();
  }

  // Whether the peer has become a rank, is refused, or is gone.
  bool is_settled(UnverifiedPeer& peer) {
    const std::vector<std::string> lines = peer.lines.received();
    if (lines.empty()) return !peer.lines.is_open() || Clock::now() >= peer.until;
    ControlMessage hello(lines.front());
    const bool is_hello = hello.word == ControlMessage::hello && !hello.text.empty();
    const int64_t version = hello.next_number();
    const std::string run_id = hello.next();
    const int64_t size = hello.next_number(), rank = hello.next_number(), pid = hello.next_number();
    std::string refusal;
    if (is_hello && version != kControlVersion) {
      refusal = "it is of another version of tanren; start all ranks with the same";
    } else if (!is_hello || pid <= 0) {
      refusal = "this is no way to begin";
    } else if (run_id != options_.run_id) {
      refusal = "another run meets here";
    } else if (size != options_.size || rank < 1 || rank >= options_.size) {
      refusal =
          fmt::format("it says rank {} of {}, and this run has {}", rank, size, options_.size);
    } else if (mailbox_.member(static_cast<int>(rank)).pid != 0) {
      refusal = fmt::format("rank {} is here already", rank);
    }
    if (refusal.empty()) {
      mailbox_.introduce(static_cast<int>(rank), pid, hello.text);
      admit(static_cast<int>(rank), std::move(peer.lines), std::span(lines).subspan(1));
    } else {
      peer.lines.send(ControlMessage::line(ControlMessage::no, refusal));
    }
    return true;
  }

  void admit(int rank, ControlLines peer, std::span<const std::string> received) {
    auto& lines = ranks_[static_cast<size_t>(rank)] = std::move(peer);
    notice_dead_machine(lines.descriptor());
    if (failure_) lines.send(ControlMessage::line(ControlMessage::news, *failure_));
    handle(rank, received);
    welcome_if_complete();
  }

  void welcome_if_complete() {
    if (is_complete_ || failure_ || !missing().empty()) return;
    is_complete_ = true;
    const ControlMember own = mailbox_.member(0);
    send_all(ControlMessage::line(ControlMessage::welcome, own.pid, own.machine));
    mailbox_.set_complete();
  }

  std::vector<size_t> missing() const {
    std::vector<size_t> ranks;
    const std::vector<ControlMember> members = mailbox_.members();
    for (size_t rank = 0; rank < members.size(); ++rank) {
      if (members[rank].pid == 0) ranks.push_back(rank);
    }
    return ranks;
  }

  void receive_from_ranks() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!ranks_[rank].is_open()) continue;
      handle(static_cast<int>(rank), ranks_[rank].received());
    }
  }

  void handle(int rank, std::span<const std::string> received) {
    for (const auto& line : received) handle(rank, line);
    const ControlLines& lines = ranks_[static_cast<size_t>(rank)];
    if (lines.is_open() || mailbox_.member(rank).left) return;
    set_failure(mailbox_.lost_text(rank, lines.why_closed()));
  }

  // Handles what a rank has sent, or what rank 0 would send if it were a client.
  void handle(int rank, const std::string& line) {
    ControlMessage message(line);
    const auto now = Clock::now();
    mailbox_.set(rank, &ControlMember::heard, now);
    switch (message.word) {
      case ControlMessage::state:
        mailbox_.set(rank, &ControlMember::state, message.text);
        if (rank == 0) send_all(line);
        break;
      case ControlMessage::fail: set_failure(message.text); break;
      case ControlMessage::ask: {
        const int64_t number = message.next_number(), part = message.next_number();
        const int64_t first = message.next_number(), awaited = message.next_number();
        if (part < 0 || awaited >= options_.size) break;
        ask_all();
        questions_.push_back({rank, number, static_cast<size_t>(part), first,
                              static_cast<int>(awaited), message.text, asked_});
        break;
      }
      case ControlMessage::here: {
        mailbox_.set(rank, &ControlMember::num_operations, message.next_numbers());
        mailbox_.set(rank, &ControlMember::firsts, message.next_numbers());
        const int64_t awaited = message.next_number(), part = message.next_number();
        const int64_t number = message.next_number();
        const bool is_valid = awaited < options_.size && part >= 0;
        mailbox_.set(rank, &ControlMember::awaited,
                     is_valid ? Awaited{static_cast<int>(awaited), message.text,
                                        static_cast<size_t>(part), number}
                              : Awaited());
        mailbox_.set(rank, &ControlMember::replied, now);
        break;
      }
      case ControlMessage::bye:
        mailbox_.set(rank, &ControlMember::left, true);
        send_all(rank == 0 ? line : ControlMessage::line(ControlMessage::left, rank));
        break;
      default: break;
    }
  }

  void ask_all() {
    // All ranks may ask at the same time: then their questions share one round of replies.
    constexpr std::chrono::milliseconds kShared{100};
    if (Clock::now() - asked_ <= kShared) return;
    asked_ = Clock::now();
    send_all(ControlMessage::line(ControlMessage::ask));
  }

  void answer_questions() {
    questions_.remove_if([this](const Question& question) {
      const std::optional<std::string> answer = answer_to(question);
      if (!answer) return false;
      if (question.rank == 0) {
        mailbox_.set_answer(*answer);
      } else {
        ranks_[static_cast<size_t>(question.rank)].send(
            ControlMessage::line(ControlMessage::answer, *answer));
      }
      return true;
    });
  }

  // Empty while ranks may still reply.
  std::optional<std::string> answer_to(const Question& question) const {
    std::vector<ControlMember> members = mailbox_.members();
    members[0] = mailbox_.reply();
    std::vector<int> silent;
    for (int rank = 1; rank < options_.size; ++rank) {
      const ControlMember& member = members[static_cast<size_t>(rank)];
      if (!member.left && member.replied < question.asked) silent.push_back(rank);
    }
    if (!silent.empty() && Clock::now() < question.asked + kAnswerTimeout) return std::nullopt;
    std::erase(silent, question.rank);  // it has just asked
    if (!silent.empty()) return mailbox_.silent_text(silent, question.phrase);
    // The asking rank counts as waiting for this, even if it also has an older wait.
    Awaited& awaited = members[static_cast<size_t>(question.rank)].awaited;
    awaited = {question.awaited, awaited.what, question.part, question.number};
    return question.awaited >= 0 ? holder_of_message(question, members)
                                 : late_for_operation(question, members);
  }

  // The ranks that have started the fewest operations of a part, and have not started operation
  // `number`, for which rank `waiting` waits.
  static std::vector<int> late_ranks(const std::vector<ControlMember>& members, int waiting,
                                     size_t part, int64_t first, int64_t number) {
    std::vector<int> late;
    int64_t fewest = number;
    for (size_t rank = 0; rank < members.size(); ++rank) {
      const auto& [counts, firsts] = std::tie(members[rank].num_operations, members[rank].firsts);
      if (static_cast<int>(rank) == waiting || members[rank].left) continue;
      if (part > 0 && (part >= firsts.size() || firsts[part] != first)) continue;
      const int64_t num = part < counts.size() ? counts[part] : 0;
      if (num >= number || num > fewest) continue;
      if (num < fewest) late.clear();
      fewest = num;
      late.push_back(static_cast<int>(rank));
    }
    return late;
  }

  static Waits waits_of(const std::vector<ControlMember>& members) {
    const auto member = [&members](int rank) -> const ControlMember& {
      return members[static_cast<size_t>(rank)];
    };
    const auto next = [&members, member](int rank) {
      const auto& [awaited, firsts] = std::tie(member(rank).awaited, member(rank).firsts);
      if (member(rank).left || awaited.number <= 0) return member(rank).left ? -1 : awaited.rank;
      const int64_t first = awaited.part < firsts.size() ? firsts[awaited.part] : 0;
      const auto late = late_ranks(members, rank, awaited.part, first, awaited.number);
      return late.empty() ? -1 : late.front();
    };
    return {members.size(), next, [member](int rank) { return member(rank).awaited.what; },
            [member](int rank) { return place_in_run(member(rank).state); },
            [member](int rank) { return member(rank).left; }};
  }

  static std::string late_for_operation(const Question& question,
                                        const std::vector<ControlMember>& members) {
    const std::vector<int> late =
        late_ranks(members, question.rank, question.part, question.first, question.number);
    if (late.empty()) return "";
    const ControlMember& first = members[static_cast<size_t>(late.front())];
    const size_t part = question.part;
    const int64_t num = part < first.num_operations.size() ? first.num_operations[part] : 0;
    return fmt::format("{} {}: it answers, and at {} it has started {} of {} operations; {}{}",
                       names_of(late), question.phrase, place_in_run(first.state), num,
                       question.number, waits_of(members).of_late(late.front()),
                       first.awaited.what.empty() ? ", or its data differ" : "");
  }

  static std::string holder_of_message(const Question& question,
                                       const std::vector<ControlMember>& members) {
    const Waits waits = waits_of(members);
    const int holder = waits.holder(question.awaited);
    const ControlMember& member = members[static_cast<size_t>(holder)];
    if (member.left) return fmt::format("rank {} {}: it has left", holder, question.phrase);
    return fmt::format("rank {} {}: it answers, and is at {}; {}", holder, question.phrase,
                       place_in_run(member.state), waits.of_holder(holder));
  }

  void report_missing() {
    set_failure(fmt::format(
        "[comm] after {} s these ranks of {} have not reached the control channel of rank 0 at "
        "port {} of {}: {}; do they run, and does a firewall let them through?",
        in_seconds(options_.timeout), options_.size, port_of(listener_), mailbox_.member(0).machine,
        fmt::join(missing(), ", ")));
  }

  void set_failure(const std::string& text) {
    if (failure_) return;
    failure_ = mailbox_.set_failure(text);
    // Sent before this rank breaks its connections, because that takes a while.
    send_all(ControlMessage::line(ControlMessage::news, *failure_));
    mailbox_.call_back();
  }

  void send_all(const std::string& line) {
    for (ControlLines& lines : ranks_) lines.send(line);
  }

  Socket listener_;
  const ControlMailbox::Options& options_;
  ControlMailbox& mailbox_;
  const Clock::time_point deadline_;
  Clock::time_point no_accept_before_;
  std::list<UnverifiedPeer> unverified_;
  std::vector<ControlLines> ranks_;  // by rank; closed for rank 0 and before it has connected
  std::list<Question> questions_;
  Clock::time_point asked_;  // when all ranks were last asked
  std::optional<std::string> failure_;
  bool is_complete_ = false;
};

}  // namespace

void run_control_server(Socket listener, ControlMailbox& mailbox) {
  ControlServer(std::move(listener), mailbox).run();
}

}  // namespace tanren
