// The two ends of the control channel, each the body of one thread: the hub on rank 0, a spoke on
// every other rank. They exchange lines of words:
//   spoke → hub hello <run> <size> <rank> <pid> <machine> · state <text> · fail <text> · bye
//   hub → spoke welcome <pid> <machine> (all have come) · no <reason> · state <text> · bye ·
//                left <rank> · news <text> (the first failure on any rank)
// If a wait has failed and no failure is known, the waiting rank asks which ranks keep it waiting:
//   spoke → hub ask <number of the operation> <phrase>
//   hub → all ask
//   spoke → hub here <number of operations that it has started>
//   hub → spoke answer <text>, once all ranks have answered, or a while later
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

// The identity of a rank, and the last state that it reported.
struct ControlMember {
  std::string machine = "?";
  int pid = 0;
  std::string state;
  bool left = false;
};

// "[comm] rank 2 (node1, pid 123) is gone without a word (last heard at step 120); …"
std::string lost_text(int rank, const ControlMember& member, const std::string& why_closed);

// How long a rank that is asked may take to answer. Both ends answer at once, whatever their run
// does.
constexpr std::chrono::seconds kAnswerPatience{3};
// "rank 1 <phrase>: its process does not answer (…), and was last heard 7 s ago at step 198"
std::string silent_text(const std::string& rank, const std::string& phrase,
                        std::chrono::steady_clock::time_point heard, const std::string& state);

// Read by standing() of the channel while the channel's thread writes it.
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

// Sends what is left, announces the end of sending, and reads until the others have closed, because
// closing a connection with unread bytes would discard the bytes just sent. At most half a second.
void take_farewell(const std::vector<ControlLines*>& lines);

// poll() over descriptors for at most `timeout`; is_ready() then tells which of them have something
// to do.
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

// The first word of a line, and the text after the blank that follows it.
std::pair<std::string, std::string> split_word(const std::string& line);

}  // namespace tanren
