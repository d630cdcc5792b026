// LoopState: the state of one call of train_loop beside the run's state: clock, counts, memory
// peaks, and what was saved and evaluated. Its functions are the parts of the loop, in the order in
// which train_loop calls them. All ranks call the same functions. Internal to train_loop.
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

// True once the plan's steps are applied, its epochs are consumed, or evaluations no longer
// improve.
bool finished(const RunState& run, const Plan& plan);

// Whether something that is done every `every` steps, 0 for never, is due at `step`.
inline bool is_due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

// Whether the state after this step depends on this step's evaluation.
bool decides(const RunState& run, const Plan& plan);

class LoopState {
 public:
  LoopState(RunState& run, const Parts& given, const LoopInputs& inputs);
  LoopState(const LoopState&) = delete;
  LoopState& operator=(const LoopState&) = delete;

  // Makes the ranks start equal, and rehearses an evaluation so that its errors show before the
  // first update.
  void begin();
  // Makes the checkpoint and the evaluation that are due after the last update. Returns why the
  // loop ends here; empty if it continues.
  std::optional<Ending> before_update();
  GlobalBatch next_batch(BatchStream& batches);
  // Makes one update and reports it to the sinks. A stop request during the update leaves no trace
  // of it. Throws if the guard halts or if no batch of an epoch counts anything.
  void update(const GlobalBatch& batch);
  // Writes the last checkpoint, then makes the last evaluation: if that fails, the training is not
  // lost.
  LoopResult end(Ending ending);

 private:
  using Clock = std::chrono::steady_clock;

  // --- saving (loop_saving.cpp)
  // Whether the last checkpoint has this state and everything that evaluations decided about it.
  bool is_saved() const;
  bool has_ruined_weights() const;
  void write(int64_t spared);
  void checkpoint(int64_t spared = 0);
  // Call this before the run ends by an error that every rank throws. Returns why nothing could be
  // written; empty if it was written.
  std::string save_last();
  // Call this before the run ends by an error that only this rank may throw; it does not
  // communicate. Returns why the state of the last update could not be written; empty if it was
  // written or if there is none to write.
  std::string keep_state();
  // "; last checkpoint: …" on rank 0, which knows it; empty on the others.
  std::string last_saved() const;
  // Runs `work`. If it throws in a run of one rank, the state is saved first, so that no step is
  // lost. With several ranks nothing is saved, because some may be in the middle of an update.
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
  bool estimate();  // the averaged weights' statistics; false if a stop was requested
  // Called when all ranks have finished the same update. Returns false if a stop was requested. The
  // evaluation is then still owed, as after an error, and has changed nothing.
  bool evaluate();

  // --- reporting
  void tell_incident(const Incident& incident);
  template <typename Report>
  void tell(const Report& report, void (Sink::*method)(const Report&)) {
    for (Sink* sink : inputs_.sinks) report_to_sink([&] { (sink->*method)(report); });
  }
  void rehearse_pictures();
  void tell_pictures(const Batch& batch);  // of `batch` if there is no evaluation data
  void tell_remarks();                     // the dataset's, after an epoch and at the end

  // --- keeping run.max_time (loop_time.cpp)
  // Sets the time at which a stop is requested, so that a save still fits before the end. Call it
  // after each update, with the seconds that the update took.
  void set_stop_time(double seconds);
  void request_stop();  // on rank 0: sets stop_at
  // Sends the time that rank 0 has left for an evaluation to all ranks, so that all stop it by one
  // clock. Call it on every rank before an evaluation. Before the first update there is no limit.
  void share_stop_time();
  // Whether another update and the save after it would end too late. False before the first update.
  bool is_out_of_time();
  // Why the loop interrupted itself; empty if it did not.
  std::string reason_of_stop() const;

  // --- counting
  void count(StepReport& report);                 // and fills in its time and memory
  void check_verdicts(const StepReport& report);  // throws if they end the run

  RunState& run_;
  Parts parts_;
  const LoopInputs& inputs_;
  const Plan& plan_;
  const bool is_first_;   // this is rank 0
  const bool estimates_;  // the averaged weights have statistics of their own
  const Clock::time_point start_ = Clock::now();

  MemoryGauge gauge_;
  std::deque<int64_t> peaks_;  // bytes, of the last steps
  MemoryState memory_;         // used to explain a failure
  LeakDetector leaks_;
  CacheRelease cache_;

  LoopResult result_;
  Clock::time_point step_start_;
  int64_t reads_before_ = 0;  // device reads when the step began
  int64_t seen_epoch_ = -1;
  int64_t uncounted_ = 0;      // batches in a row of this epoch that counted nothing
  bool is_applied_ = false;    // the last attempt was applied
  bool stop_agreed_ = false;   // several ranks agreed to stop in the last update
  double update_seconds_ = 0;  // of the slowest of the last updates
  double save_seconds_ = 0;    // that a save takes; guessed before the first one; 0: unknown
  int64_t num_saves_ = 0;
  bool out_of_time_ = false;  // by run.max_time

  // Attempt and judged step of the last checkpoint.
  int64_t saved_at_ = -1, saved_judged_ = -1;
  std::map<std::string, Values> values_at_start_;
  int64_t evaluated_at_ = -1;   // a step
  std::optional<Batch> shown_;  // samples of the evaluation data that pictures show
  std::string left_out_;        // the terms left out of evaluations, as last logged
  bool is_among_best_ = false;  // this step is, which makes it a checkpoint
};

}  // namespace tanren
