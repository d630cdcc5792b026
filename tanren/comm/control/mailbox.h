// ControlMailbox: the data that a rank's own threads and the thread of its control channel
// exchange: messages to send, the state of all ranks as their messages describe it, the first
// failure, and the answer to a question. Invariant: the first failure stays, and the callback gets
// it once. Thread-safe, torch-free. Called through control.h by the run, and by the two ends of the
// channel.
#pragma once

#include "tanren/comm/awaited.h"
#include "tanren/comm/sockets.h"

#include <sys/eventfd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace tanren {

// What this rank knows about a rank.
struct ControlMember {
  std::string machine = "?";
  int64_t pid = 0;  // 0: it has not connected yet
  std::string state;
  bool left = false;
  std::chrono::steady_clock::time_point heard = std::chrono::steady_clock::now();
  // When it last replied to an ask of the server.
  std::chrono::steady_clock::time_point replied{};
  std::vector<int64_t> num_operations;  // started, by ControlPart::index
  std::vector<int64_t> firsts;  // the lowest rank of its part, by ControlPart::index; below 0: none
  Awaited awaited;
};

// Ranks that start the same operations in the same order: all of them, or those of a part. Parts
// that share no rank may have the same index. Index and lowest rank together are unique.
struct ControlPart {
  size_t index = 0;        // of its operation counter; 0: all ranks
  std::vector<int> ranks;  // rising; empty: all

  int first() const { return ranks.empty() ? 0 : ranks.front(); }
};

class ControlMailbox {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    std::string run_id;  // random, one word, shared only by the ranks of this run
    std::chrono::milliseconds timeout{60'000};  // until all ranks have connected
  };
  using OnFailure = std::function<void(const std::string& why)>;

  explicit ControlMailbox(const Options& given);
  const Options options;

  // The functions down to standing() are for the run's threads.

  // The progress of this rank ("step 120"), which the others report if it is lost. Cheap: sent at
  // most a few times a second.
  void set_state(const std::string& state);
  // Reports the failure "[comm] rank <this>: <cause>" to all ranks including this one; `cause` is
  // used unchanged if it already begins with "[comm] rank". The first failure stays. Returns when
  // the report is on its way, or after a second.
  void fail(const std::string& cause);
  // Announces that this rank has finished, so that its end is no failure.
  void leave();

  // This rank is in the part from now on. Called before it counts operations of the part.
  void join(const ControlPart& part);
  // Counts an operation that this rank starts in the part of this index. Returns its number there,
  // from 1 on.
  int64_t count_operation(size_t part = 0);
  // Names the ranks that keep operation `number` waiting. If some ranks do not answer, it names
  // only these ranks: "rank 1 <phrase>: its process does not answer …". If all ranks answer, it
  // names those that have started the fewest operations of the part and not this one: "rank 1
  // <phrase>: it answers, …". Empty if there are neither, or after a failure is known. Asks all
  // ranks, and takes seconds if one does not answer.
  std::string held_up_by(int64_t number, const std::string& phrase, const ControlPart& part = {});
  // Names the rank that keeps a message with rank `rank` waiting: a rank that does not answer, or
  // otherwise the last rank in the chain of waits that begins at `rank`. In this chain, a wait for
  // a message leads to the message's other rank. A wait for a collective operation leads to the
  // rank of its part that has started the fewest.
  std::string held_up_by_message(int rank, const std::string& phrase);
  // While it lives, this rank's replies say that it waits for `awaited`. Costs no communication.
  class AwaitScope {
   public:
    // `mailbox` may be null.
    AwaitScope(ControlMailbox* mailbox, Awaited awaited);
    ~AwaitScope();
    AwaitScope(const AwaitScope&) = delete;
    AwaitScope& operator=(const AwaitScope&) = delete;

   private:
    ControlMailbox* mailbox_;
    std::list<Awaited>::iterator place_;
  };

  // The failure that ended the run, if there is one; waits for it at most `timeout`.
  std::optional<std::string> failure(std::chrono::milliseconds timeout = {}) const;
  // `call` is called once with a failure that is not this rank's own: on the channel's thread, or
  // at once if the failure is already known. It must neither block nor use the channel. An empty
  // `call` removes the callback; on return, a call under way has ended.
  void on_failure(OnFailure call);
  // "rank 0 at step 12, rank 1 has left": on rank 0 about all ranks, on others about rank 0 and the
  // ranks that have left.
  std::string standing() const;

  // Waits until all ranks have connected. CommError with the failure that came instead.
  void wait_until_complete() const;
  // Ends the channel's thread soon.
  void stop() {
    change([&] { stop_ = true; });
    wake();
  }

  // The functions below are for the channel's thread.

  struct Outgoing {
    std::vector<std::string> lines;  // of messages, as a client sends them
    bool stop = false;               // these are the last
  };
  Outgoing take();
  void set_sent() {  // all that has been taken
    change([&] { num_sent_ = num_taken_; });
  }
  int wake_descriptor() const { return wake_.descriptor(); }
  // This rank's own entry. Its last fields are what a reply contains.
  ControlMember reply() const;
  void set_complete() {
    change([&] { complete_ = true; });
  }
  void set_answer(const std::string& text) {
    change([&] { answer_ = text; });
  }
  std::string set_failure(const std::string& text);  // returns the first one
  // Calls the callback, once, with a failure that is not this rank's own. May take a while.
  void call_back();

  std::vector<ControlMember> members() const;
  ControlMember member(int rank) const { return members()[static_cast<size_t>(rank)]; }
  template <class Value>
  void set(int rank, Value ControlMember::*field, const std::type_identity_t<Value>& value) {
    change([&] { members_[static_cast<size_t>(rank)].*field = value; });
  }
  void introduce(int rank, int64_t pid, const std::string& machine);
  // "[comm] rank 2 (node1, pid 123) is gone without a word (last heard at step 120); …"
  std::string lost_text(int rank, const std::string& why_closed) const;
  // "rank 1 <phrase>: its process does not answer (…), and was last heard 7 s ago at step 198"
  std::string silent_text(const std::vector<int>& ranks, const std::string& phrase) const;

 private:
  template <class F>
  void change(const F& change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  void wake() const { ::eventfd_write(wake_.descriptor(), 1); }
  void post(std::unique_lock<std::mutex>& lock, const std::string& line);
  std::string ask(const std::string& question, const std::string& phrase);

  const Socket wake_;
  std::mutex ask_mutex_;  // one question at a time; taken before mutex_
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<ControlMember> members_;                        // by rank
  std::vector<int64_t> num_operations_ = {0}, firsts_ = {0};  // by ControlPart::index
  std::list<Awaited> awaited_;                                // the newest last
  std::vector<std::string> lines_;                            // not taken yet
  std::optional<std::string> state_;                          // the newest, not taken yet
  bool stop_ = false;
  int64_t num_taken_ = 0, num_sent_ = 0;  // calls of take()
  bool complete_ = false;
  std::optional<std::string> answer_;
  std::optional<std::string> failure_;
  bool is_own_failure_ = false;
  std::chrono::steady_clock::time_point state_sent_;

  std::mutex call_mutex_;  // held while the callback runs; taken before mutex_
  OnFailure call_;
};

// "rank 1, rank 3 and 4 more"
std::string names_of(const std::vector<int>& ranks);
// "step 120"; "its start" if it is empty
inline std::string place_in_run(const std::string& state) {
  return state.empty() ? "its start" : state;
}

}  // namespace tanren
