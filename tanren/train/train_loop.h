// The loop: takes batches from the loader, makes updates, reports to the sinks, and evaluates and
// writes checkpoints at applied steps, until the plan's length is reached, evaluations no longer
// improve (early_stop) or a stop is requested. Every rank runs it. Only rank 0 has the sinks and
// writes checkpoints (with the others if they share the optimizer's state). Public and without
// privileges: copy it if it does not fit.
#pragma once

#include "tanren/base/report.h"
#include "tanren/data/loader.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct LoopInputs {
  const Dataset& train;
  const Dataset* eval = nullptr;      // null: no evaluation
  std::filesystem::path checkpoints;  // empty: none are written
  std::string config_toml;            // stored in each checkpoint
  std::string plan_text;
  std::vector<Sink*> sinks;
  std::string origin = {};           // stored in each checkpoint, too (checkpoint.h)
  std::function<void()> saved = {};  // called when a checkpoint is complete
  // The loop stops early enough to have saved by this time (run.max_time), as at a stop request.
  // Each call of train_loop makes at least one update. Either all ranks set it or none does; rank
  // 0's value counts.
  std::optional<std::chrono::steady_clock::time_point> ends_at = std::nullopt;
};

// Length reached; run.stop_after; stop flag or run.max_time.
enum class Ending { finished, stopped, interrupted };

struct LoopResult {
  Ending ending = Ending::finished;
  int64_t session_steps = 0;  // applied updates of this session
  int64_t session_attempts = 0;
  int64_t session_samples = 0;
  int64_t session_tokens = 0;
  int64_t skipped_steps = 0;
  double first_step_seconds = 0;  // from the loop's start to the end of its first update
  double train_seconds = 0;  // updates and waiting for data, without evaluation and checkpoints
  int64_t device_reads = 0;  // made by updates
  std::optional<StepReport> last;
  std::map<std::string, double> losses;        // of several objectives, each of its last update
  std::optional<EvaluationReport> evaluation;  // the last one
  std::string reason;  // why it finished early, or stopped without a request; empty otherwise
  std::filesystem::path checkpoint;  // the last one written
  int64_t recoveries = 0;            // failures for lack of memory that it recovered from
  std::string growth;                // what the leak detector warned of
};

// Writes run's checkpoint under inputs.checkpoints and returns its folder. Keeps `spared` older
// checkpoints beyond those of checkpoint.keep. If ranks share the optimizer's state or hold a stage
// each, every rank calls it at the same time.
std::filesystem::path save_checkpoint(const RunState& run, const Parts& parts,
                                      const LoopInputs& inputs, int64_t spared = 0);

// Whether a run of `plan` is at its end after `step` applied updates with the cursor `at`.
bool reached_length(const Plan& plan, int64_t step, const Cursor& at);

// Whether an evaluation is owed: the one after the last update, or the last one of the run, has not
// been made. The loop begins with it.
bool owes_evaluation(const RunState& run, const Plan& plan);

// Loads this rank's shares of the batches of `dataset` from the run's cursor on, as the plan says.
Loader make_loader(const RunState& run, const Parts& parts, const Dataset& dataset);

// Runs the loop. A stop request ends the update and an evaluation, on every rank; the state is
// saved. The state is also saved before the evaluation at the end, so that a failing evaluation
// loses no update. Throws NonFiniteError when the guard halts. It first writes a checkpoint, which
// has nothing of the refused update. The error's line names step, cause, culprit and that
// checkpoint. Weights that are not finite are never written; the line then names the previous
// checkpoint.
LoopResult train_loop(RunState& run, const Parts& parts, const LoopInputs& inputs);

}  // namespace tanren
