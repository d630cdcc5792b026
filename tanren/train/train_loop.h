// The loop: batches from the loader, updates, reports to the sinks, evaluation and checkpoints at
// applied steps, until the plan's length is reached, evaluations no longer improve (early_stop) or a
// stop is requested. Every rank runs it; rank 0 alone has the sinks, and writes
// checkpoints (with the others where they share the optimizer's state). Public and
// without privileges: copy it where it does not fit.
#pragma once

#include "tanren/base/report.h"
#include "tanren/data/loader.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

#include <filesystem>
#include <functional>
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
  std::string origin = {};  // stored in each checkpoint, too (checkpoint.h)
};

enum class Ending { finished, stopped, interrupted };  // length reached, run.stop_after, stop flag

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
  std::optional<EvaluationReport> evaluation;  // the last one
  std::string reason;                          // why it finished before its length; empty: at it
  std::filesystem::path checkpoint;            // the last one written
  int64_t recoveries = 0;  // failures for lack of memory that were recovered from
  std::string growth;      // what the leak detector warned of
};

// Where ranks share the optimizer's state, every rank calls it at the same time.
// Writes run's checkpoint under inputs.checkpoints and returns its folder. So many older ones stay
// beyond those of checkpoint.keep.
std::filesystem::path save_checkpoint(const RunState& run, const Parts& parts,
                                      const LoopInputs& inputs, int64_t spared = 0);

// Whether the evaluation that follows the last update, or is the last one, was not made: a stop request
// broke it off, or an error. The loop begins with it.
bool owes_evaluation(const RunState& run, const Plan& plan);

// This rank's shares of the batches of `dataset` from the run's cursor on, as the plan wants them.
Loader make_loader(const RunState& run, const Parts& parts, const Dataset& dataset);

// A stop request ends the update and an evaluation, on every rank; the state is saved. Before the
// evaluation at the end it is saved first: whatever comes of that, no update is lost.
// Throws RunError when the guard halts: the line names step, cause, culprit and the checkpoint of the state
// then, which is written first: nothing of the refused update is in it. Weights that are not finite are
// never written: the line then names the checkpoint before.
LoopResult train_loop(RunState& run, const Parts& parts, const LoopInputs& inputs);

}  // namespace tanren
