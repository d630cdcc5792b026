// A whole run: config → plan → run folder → build → loop → summary. What `tanren run`, `plan` and
// `eval` do, without printing: the caller owns the terminal.
#pragma once

#include "tanren/base/report.h"
#include "tanren/config/run_config.h"
#include "tanren/forecast/memory_forecast.h"
#include "tanren/interop/export.h"
#include "tanren/metrics/summary.h"
#include "tanren/plan/plan.h"
#include "tanren/train/registry.h"
#include "tanren/train/train_loop.h"

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tanren {

struct RunInput {
  RunConfig config;
  std::filesystem::path folder;  // run folder
  // Keys that this start sets explicitly (--set). If the run resumes, those that may change on
  // request take the new values.
  std::set<std::string> requested = {};
  std::vector<Sink*> sinks;                 // besides the log file's
  const std::atomic<bool>* stop = nullptr;  // set: save and stop
  // With several processes: called with true before this process waits for the others, and with
  // false once all have met. `stop` is not checked in between.
  std::function<void(bool waits)> rendezvous;
  // With several processes: called on each once its data and model are prepared. `stop` is not
  // checked before, and the process may end at any moment, because nothing has begun.
  std::function<void()> prepared = {};
  // Called on rank 0 once the plan is made and before the first step; `ranks`: one line per rank if
  // there are several.
  std::function<void(const Plan&, const std::optional<std::filesystem::path>& resumed_from,
                     const std::vector<std::string>& ranks)>
      started;
  // Called on rank 0 after `started`, if run.debug is set: the first step's batch and layers as
  // text (forecast/first_step.h). If empty, they are not computed.
  std::function<void(const std::string& first_step)> debug;
  // Called on rank 0 once a run has reached its end and no evaluation is left: `stop` is not
  // checked any more.
  std::function<void()> finished;
  double started_at = 0;  // seconds this process had run before run() was called
};

struct RunOutput {
  Summary summary;
  LoopResult loop;
  std::optional<Exported> exported;  // of a finished run, on rank 0
  // Its 8-bit model, if the training was quantisation-aware; empty: none, or summary.unwritten says
  // why it was not written.
  std::filesystem::path quantized = {};
  bool is_first = true;  // this process is rank 0, or contains it
};

// Trains. A launcher's processes all call it; only rank 0 has the run folder and the sinks. Errors
// as train_loop and RunFolder; CommError.
RunOutput run(const RunInput& input, const Registry& registry);

// Plans without starting: no folder, no step. With a run folder: how that run would resume if
// started with this config and `requested`. ConfigError if run() would refuse it, except that the
// plan of a finished run is shown.
Plan plan_only(const RunConfig& config, const Registry& registry,
               const std::filesystem::path& folder = {},
               const std::set<std::string>& requested = {});

// The same, with a memory forecast around the plan.
struct PlannedMemory {
  Plan plan;
  MemoryForecast memory;
};
PlannedMemory plan_memory_of(const RunConfig& config, const Registry& registry,
                             const std::filesystem::path& folder = {},
                             const std::set<std::string>& requested = {});

struct Evaluated {
  EvaluationReport report;                    // the same on every rank
  std::optional<std::string> sample;          // text from a language model, as [generate] asks
  std::vector<std::string> class_names = {};  // of class 0, 1, …; empty: they have none
  std::string unwritten = {};                 // why the file of predictions was not written
};

// The checkpoint in a run folder that evaluate.checkpoint names: a step folder, or
// model.safetensors (also for "latest" if no checkpoint is left). CheckpointError if it does not
// exist.
std::filesystem::path chosen_checkpoint(const RunConfig& config,
                                        const std::filesystem::path& folder);

// The file that an evaluation writes its predictions to.
struct PredictionsTo {
  std::filesystem::path file;  // .csv or .jsonl; empty: none
  bool replaces = false;       // may replace an existing file
};

// Evaluates a step folder or a file of exported weights on the config's evaluation data. With
// data.split, these must be the rows kept from training, see check_held_out (held_out.h). A run
// with averages is evaluated on the averaged weights, unless average.evaluate is false. The
// processes of a launcher share the samples. If `outputs` is not empty, output pictures are written
// into that folder, see outputs_writer (write_outputs.h). Predictions of classes and values are
// written into the file of `predictions` (write_predictions.h). If that fails at the end,
// Evaluated::unwritten says why, and the evaluation is not lost.
Evaluated evaluate_checkpoint(const RunConfig& config, const std::filesystem::path& checkpoint,
                              const Registry& registry, const std::atomic<bool>* stop,
                              const std::filesystem::path& outputs = {},
                              const PredictionsTo& predictions = {});

// The config with all of the file or folder `data` as its evaluation data, read as
// evaluation_source (model_description.h) says. Keys of its section in `requested` keep their
// values (data.eval, or data.train if data.eval has no kind). ConfigError for data that are read
// from no file, if `requested` names another place, and for a registered kind if `data` does not
// exist.
RunConfig evaluated_on(RunConfig config, const std::filesystem::path& data,
                       const std::set<std::string>& requested = {});

// Evaluates a whole model (whole_model.h) on `data`, which replaces data.eval.path; empty for kinds
// that read no file. `sets` change keys of the description, as --set. The results equal those of
// evaluate_checkpoint on the same weights and data.
Evaluated evaluate_whole_model(const std::filesystem::path& file, const std::filesystem::path& data,
                               const std::vector<std::string>& sets, const Registry& registry,
                               const std::atomic<bool>* stop,
                               const std::filesystem::path& outputs = {},
                               const PredictionsTo& predictions = {});

}  // namespace tanren
