// C10dLine: the state that a communicator over c10d shares with its parts: the control channel, the
// first failure of any rank, and the engines to end when a failure is known. Invariant: the first
// failure stays. Once it is known, every engine that was added is ended. Thread-safe. Called by
// c10d_communicator.cpp.
#pragma once

#include "tanren/comm/control/control.h"

#include <chrono>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <string>

namespace tanren {

class C10dLine {
 public:
  // `rank`: of this process among all ranks. With a null `control`, failures of other ranks stay
  // unknown.
  C10dLine(std::unique_ptr<ControlChannel> control, int rank);
  ~C10dLine();
  C10dLine(const C10dLine&) = delete;
  C10dLine& operator=(const C10dLine&) = delete;

  int rank() const { return rank_; }
  // Null after close().
  ControlChannel* control() const { return control_.get(); }
  // ControlPart::index of the next part that this rank joins. Only one thread calls both functions.
  size_t next_part() const { return next_part_; }
  void take_part(size_t index) { next_part_ = index + 1; }

  // Ends the waits of an engine. It may block, and must own what it uses.
  using End = std::function<void()>;
  struct Engine {
    End end;  // empty once called
    std::future<bool> ending = {};
  };
  using Place = std::list<Engine>::iterator;
  // Calls `end` on a separate thread as soon as a failure is known. The thread is needed because
  // NCCL's abort of one communicator may wait until another one of the same process is also aborted
  // (pytorch#132291, nccl#1013).
  Place add(End end);
  // Waits a few seconds for a running call of `end`. After that the call continues on its own
  // thread.
  void remove(Place place);

  // Reports `why` to all ranks, and begins to end everything here.
  void cancel(const std::string& why);
  // Stores a failure; the first one stays.
  void set_why(const std::string& why);
  std::string why() const;  // empty: none
  // CommError with the failure, if there is one.
  void check() const;
  // The same, if it has been known for longer than `time`.
  void check_after(std::chrono::milliseconds time) const;

  // Reports to the other ranks that this one has finished or `failed`, and closes the control
  // channel.
  void close(bool failed);

 private:
  void end_all();
  static void begin(Engine& engine);

  const int rank_;
  mutable std::mutex mutex_;
  std::string why_;                              // guarded by mutex_
  std::chrono::steady_clock::time_point ended_;  // guarded by mutex_; when why_ was set
  std::mutex ends_mutex_;                        // taken before mutex_
  std::list<Engine> ends_;                       // guarded by ends_mutex_
  size_t next_part_ = 1;
  std::unique_ptr<ControlChannel> control_;
};

}  // namespace tanren
