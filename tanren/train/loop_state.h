// What one pass of the loop keeps beside the run's own state: clock, counts, peaks of memory, what is
// saved, what was evaluated. Its functions are the parts of the loop, in the order in which train_loop
// calls them; on several ranks all call the same. Internal to train_loop.
#pragma once

#include "tanren/base/report.h"
#include "tanren/guard/leak_detector.h"
#include "tanren/memory/cache_release.h"
#include "tanren/memory/fault.h"
#include "tanren/memory/gauge.h"
#include "tanren/train/batch_stream.h"
#include "tanren/train/endings.h"
#include "tanren/train/finite_weights.h"
#include "tanren/train/train_loop.h"

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <string>

namespace tanren {

// True once the plan's steps are applied, its epochs consumed, or it no longer improves.
bool finished(const RunState& run, const Plan& plan);

// Whether something that is done every so many steps, 0 for never, is done at this one.
inline bool is_due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

// Whether the state that goes on from here depends on this step's evaluation.
bool decides(const RunState& run, const Plan& plan);

class LoopState {
 public:
  LoopState(RunState& run, const Parts& given, const LoopInputs& inputs);
  LoopState(const LoopState&) = delete;
  LoopState& operator=(const LoopState&) = delete;

  // Makes the ranks alike and rehearses an evaluation: what is wrong with it shows before the first update.
  void begin();
  // The checkpoint and the evaluation that are due behind the last update. Why the loop ends here; empty:
  // it goes on.
  std::optional<Ending> before_update();
  GlobalBatch next_batch(BatchStream& batches);
  // One update, told to the sinks. False: a stop was requested amid it, and nothing has changed. Throws
  // where the guard halts or no batch of an epoch counts anything.
  bool update(const GlobalBatch& batch);
  // The last checkpoint, then the last evaluation: whatever comes of that, the training is not lost.
  LoopResult end(Ending ending);

 private:
  using Clock = std::chrono::steady_clock;

  // --- saving (loop_saving.cpp)
  // Whether the last checkpoint has this state, and all that evaluations decided of it.
  bool is_saved() const;
  bool has_ruined_weights() const;
  void write(int64_t spared);
  void checkpoint(int64_t spared = 0);
  // Before an error that every rank meets ends the run. Why nothing could be written; empty: it is.
  std::string save_last();
  // Before an error that may be of this rank alone: no exchange. Why the state of the last update could
  // not be written; empty: it is, or there is none.
  std::string keep_state();
  // "; last checkpoint: …" from rank 0, which knows.
  std::string last_saved() const;
  // What ends a run of one rank costs no trained step. Of several some may be amid an update.
  template <typename Work>
  auto saved_before_error(const std::string& where, const Work& work) {
    try {
      return work();
    } catch (...) {
      rethrow_saved(where);
    }
  }
  [[noreturn]] void rethrow_saved(const std::string& where);

  // --- evaluating
  bool estimate();  // averaged statistics; false where a stop was requested
  // All ranks are behind the same update. False where a stop was requested: then it is owed, as it is
  // behind an error, and no trace of it is left.
  bool evaluate();

  // --- telling
  void tell_incident(const Incident& incident);
  template <typename Report>
  void tell(const Report& report, void (Sink::*method)(const Report&)) {
    for (Sink* sink : inputs_.sinks) report_to_sink([&] { (sink->*method)(report); });
  }
  void tell_remarks();  // of the data, at the end of an epoch and of the run

  // --- counting
  void count(StepReport& report);                 // and what it took
  void check_verdicts(const StepReport& report);  // throws where they end the run

  RunState& run_;
  Parts parts_;
  const LoopInputs& inputs_;
  const Plan& plan_;
  const bool is_first_;   // of the ranks
  const bool estimates_;  // the averaged weights have statistics of their own
  const Clock::time_point start_ = Clock::now();

  MemoryGauge gauge_;
  std::deque<int64_t> peaks_;  // bytes, of the last steps
  MemoryState memory_;         // what a failure is explained with
  LeakDetector leaks_;
  CacheRelease cache_;

  LoopResult result_;
  Clock::time_point step_start_;
  int64_t reads_before_ = 0;  // of the device, when the step began
  int64_t seen_epoch_ = -1;
  int64_t uncounted_ = 0;     // batches in a row of this epoch that counted nothing
  bool is_applied_ = false;   // the last attempt
  bool stop_agreed_ = false;  // by several ranks, after an update

  int64_t saved_at_ = -1,
          saved_judged_ = -1;  // attempt and judged step that the last checkpoint has
  std::map<std::string, Values> values_at_start_;
  int64_t evaluated_at_ = -1;   // a step
  std::string left_out_;        // of evaluations, as the log told it
  bool is_among_best_ = false;  // this step, which makes it a checkpoint
};

}  // namespace tanren
