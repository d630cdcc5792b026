// The two ends of the control channel, each the body of one thread: the hub on rank 0, a spoke on
// every other rank. Lines of words go between them:
//   spoke → hub  hello <run> <size> <rank> <pid> <machine> · state <text> ·
//   fail <text> · bye hub → spoke  welcome <pid> <machine> (all have come) · no
//   <reason> · state <text> · bye · left <rank>
//                news <text> (the first failure, whosever)
// When a wait has failed and there is no news of it, who waited asks who keeps it waiting:
//   spoke → hub  ask <number of the operation> <phrase>
//   hub → all    ask
//   spoke → hub  here <number of operations that it has started>
//   hub → spoke  answer <text>, once all have said so, or a while later
// Invariant: run() ends soon after the desk's stop, and neither throws nor blocks. Called by
// control.cpp.
#pragma once

#include "tanren/comm/control/control.h"
#include "tanren/comm/control/desk.h"
#include "tanren/comm/control/lines.h"

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <vector>

namespace tanren {

// Who a rank is and what it said last.
struct ControlMember {
  std::string machine = "?";
  int pid = 0;
  std::string state;
  bool left = false;
};

// "[comm] rank 2 (node1, pid 123) is gone without a word (last heard at step 120); …"
std::string lost_text(int rank, const ControlMember& member, const std::string& why_closed);

// How long who is asked may take to answer; both ends answer at once, whatever their run does.
constexpr std::chrono::seconds kAnswerPatience{3};
// "rank 1 <phrase>: its process does not answer (…), and was last heard 7 s ago at step 198"
std::string silent_text(const std::string& rank, const std::string& phrase,
                        std::chrono::steady_clock::time_point heard, const std::string& state);

// What standing() of the channel reads while its thread writes.
class ControlStanding {
 public:
  explicit ControlStanding(int size) : members_(static_cast<size_t>(size)) {}
  ControlMember member(int rank) const {
    const std::lock_guard lock(mutex_);
    return members_[static_cast<size_t>(rank)];
  }
  template <class F>
  void change(int rank, const F& change) {
    const std::lock_guard lock(mutex_);
    change(members_[static_cast<size_t>(rank)]);
  }
  std::string text(bool of_all) const;

 private:
  mutable std::mutex mutex_;
  std::vector<ControlMember> members_;
};

class ControlEnd {
 public:
  virtual ~ControlEnd() = default;
  virtual void run() = 0;
};

std::unique_ptr<ControlEnd> control_hub(Socket listener, const ControlChannel::Options& options,
                                        ControlDesk& desk, ControlStanding& standing);
std::unique_ptr<ControlEnd> control_spoke(Socket socket, const ControlChannel::Options& options,
                                          ControlDesk& desk, ControlStanding& standing);

// Sends what is left, says that nothing more comes, and reads until the others have closed: bytes
// that are thrown away unread would take ours with them. Half a second at most.
void take_farewell(const std::vector<ControlLines*>& lines);

// poll() over descriptors for at most `timeout`; which of them have something to do.
class ControlPoll {
 public:
  void clear() { polled_.clear(); }
  void add(int descriptor, bool also_writable = false);
  void wait(std::chrono::milliseconds timeout);
  bool is_ready(int descriptor) const;

 private:
  struct Polled {
    int descriptor;
    short events, found;
  };
  std::vector<Polled> polled_;
};

// The first word of a line, and what follows the blank behind it.
std::pair<std::string, std::string> split_word(const std::string& line);

}  // namespace tanren
