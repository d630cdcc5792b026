// ControlChannel: reports failures ("news") among the processes of a run, beside their collectives,
// which would only time out. A star of TCP connections to rank 0, watched by one thread per
// process; a connection that ends without a goodbye is a lost rank. Invariant: the first failure
// has the same text on all ranks, except on a rank that failed itself at the same time.
// Thread-safe, torch-free. Called by the communicators of Gloo and NCCL.
#pragma once

#include "tanren/comm/sockets.h"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace tanren {

class ControlChannel {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    std::string run_id;  // random, one word, shared only by the ranks of this run
    std::chrono::milliseconds timeout{60'000};  // until all ranks have connected
  };

  // Rank 0 calls lead; the others call join with the port of its listener. Both return when all
  // ranks have connected. CommError with the names of the missing ranks, or with a failure reported
  // meanwhile.
  static std::unique_ptr<ControlChannel> lead(Socket listener, const Options& options);
  static std::unique_ptr<ControlChannel> join(const std::string& host, int port,
                                              const Options& options);
  // Unless leave() or fail() was called, the others learn that this rank is gone.
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  // The progress of this rank ("step 120"), which the others report if it is lost. Cheap: sent at
  // most a few times a second.
  void set_state(const std::string& state);
  // Reports the failure "[comm] rank <this>: <cause>" to all ranks including this one; `cause` is
  // used unchanged if it already begins with "[comm] rank". The first failure stays. Returns when
  // the report is on its way.
  void fail(const std::string& cause);
  // Announces that this rank has finished, so that its end is no failure.
  void leave();

  // Counts an operation that this rank starts. Returns its number, from 1 on.
  int64_t count_operation();
  // Names the ranks that keep operation `number` waiting: "rank 1 <phrase>: its process does not
  // answer …" for ranks that do not answer, else "rank 1 <phrase>: it answers, …" for those that
  // have started the fewest operations and not this one. Empty if there are neither, or if a
  // failure is known. Asks all ranks, and takes seconds if one does not answer.
  std::string held_up_by(int64_t number, const std::string& phrase);

  // The failure that ended the run, if there is one; waits for it at most `timeout`.
  std::optional<std::string> news(std::chrono::milliseconds timeout = {}) const;
  // `call` is called once with a failure that is not this rank's own: on the channel's thread, or
  // at once if the failure is already known. It must neither block nor call on_news. An empty
  // `call`: on return, a call under way has ended.
  void on_news(std::function<void(const std::string& why)> call);
  // "rank 0 at step 12, rank 1 has left": on rank 0 about all ranks, on others about rank 0 and the
  // ranks that have left.
  std::string standing() const;

 private:
  class Running;
  explicit ControlChannel(std::unique_ptr<Running> running);
  std::unique_ptr<Running> running_;
};

}  // namespace tanren
