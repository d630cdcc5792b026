// ControlChannel: news of failure among the processes of a run, beside their collectives, which
// would only time out. A star of TCP connections to rank 0, watched by one thread per process; a
// connection that ends without a goodbye is a lost rank. Invariant: the first news is the same text
// on all ranks, but on one that has failed itself at the same time. Thread-safe, torch-free. Called by
// Gloo's and NCCL's communicators.
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
    std::string run_id;  // random, one word, the same on the ranks of this run alone
    std::chrono::milliseconds timeout{60'000};  // until all ranks have connected
  };

  // Rank 0's; the others join at the port of the listener. Both return when all ranks are there.
  // CommError with the names of those that are not, or with the news that came meanwhile.
  static std::unique_ptr<ControlChannel> lead(Socket listener, const Options& options);
  static std::unique_ptr<ControlChannel> join(const std::string& host, int port,
                                              const Options& options);
  // Without leave() or fail() before, the others learn that this rank is gone.
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  // Where this rank is ("step 120"), for the others to say if it is lost. Cheap: sent a few times a
  // second at most.
  void set_state(const std::string& state);
  // All ranks, this one too, have the news "[comm] rank <this>: <cause>", or the cause as it is
  // where it already says "[comm] rank". The first news stays. Returns when it is on its way.
  void fail(const std::string& cause);
  // The goodbye of a rank that has finished: its end is no news.
  void leave();

  // Counts an operation that this rank starts; its number, from 1 on.
  int64_t count_operation();
  // Who keeps the operation `number` waiting: "rank 1 <phrase>: its process does not answer …" of the
  // ranks that do not, else "rank 1 <phrase>: it answers, …" of those that have started the fewest
  // operations and not this one. Empty where it is neither, or there is news. Asks all ranks, and takes
  // seconds where one does not answer.
  std::string held_up_by(int64_t number, const std::string& phrase);

  // Why the run cannot go on; waits for it at most `timeout`.
  std::optional<std::string> news(std::chrono::milliseconds timeout = {}) const;
  // Called once with news that is not this rank's own, on the channel's thread, or at once where it
  // is there already. Must neither block nor call this. Empty: a call under way has ended on
  // return.
  void on_news(std::function<void(const std::string& why)> call);
  // "rank 0 at step 12, rank 1 has left": on rank 0 of all, elsewhere of rank 0 and those that have
  // left.
  std::string standing() const;

 private:
  class Running;
  explicit ControlChannel(std::unique_ptr<Running> running);
  std::unique_ptr<Running> running_;
};

}  // namespace tanren
