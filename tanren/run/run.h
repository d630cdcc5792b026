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
#include <string>
#include <vector>

namespace tanren {

struct RunInput {
  RunConfig config;
  std::filesystem::path folder;  // of the run
  // Keys whose value is asked for by this start (--set): what may change on request then does, where
  // the folder's run goes on.
  std::set<std::string> requested = {};
  std::vector<Sink*> sinks;                 // beside the log file's
  const std::atomic<bool>* stop = nullptr;  // set: save and stop
  // Of several processes: true before this one waits for the others, false once all have met; nobody
  // looks at `stop` between.
  std::function<void(bool waits)> rendezvous;
  // Told on rank 0 once the plan is made and before the first step; `ranks`: a line on each of several.
  std::function<void(const Plan&, const std::optional<std::filesystem::path>& resumed_from,
                     const std::vector<std::string>& ranks)>
      started;
  // Told on rank 0 once a run that reaches its end has no evaluation before it: nobody looks at `stop`.
  std::function<void()> finished;
  double started_at = 0;  // seconds this process has lived before run() was called
};

struct RunOutput {
  Summary summary;
  LoopResult loop;
  std::optional<Exported> exported;  // of a finished run, on rank 0
  bool is_first = true;              // this process is rank 0, or has it
};

// Trains. Called by every process of a run that a launcher started on several ranks: rank 0 alone has
// the run folder and the sinks. Errors as train_loop and RunFolder; CommError.
RunOutput run(const RunInput& input, const Registry& registry);

// Plans and starts nothing: no folder, no step. With a run folder: how that run would go on where a start
// has this config and asks for `requested`; ConfigError where run() would refuse it, but for a finished
// run, whose plan is shown.
Plan plan_only(const RunConfig& config, const Registry& registry,
               const std::filesystem::path& folder = {},
               const std::set<std::string>& requested = {});

// The same, and what its memory looks like from around it.
struct PlannedMemory {
  Plan plan;
  MemoryForecast memory;
};
PlannedMemory plan_memory_of(const RunConfig& config, const Registry& registry,
                             const std::filesystem::path& folder = {},
                             const std::set<std::string>& requested = {});

struct Evaluated {
  EvaluationReport report;                    // the same on every rank
  std::optional<std::string> sample;          // what a language model writes, as [generate] asks
  std::vector<std::string> class_names = {};  // of class 0, 1, …; empty: they have none
};

// What evaluate.checkpoint names in a run folder: a step folder, or its model.safetensors (which also
// stands for "latest" where no checkpoint is left). CheckpointError if it is not there.
std::filesystem::path chosen_checkpoint(const RunConfig& config,
                                        const std::filesystem::path& folder);

// Evaluates a step folder or a file of exported weights on the config's evaluation data: of a run
// with averages the averaged weights, unless average.evaluate is false. The processes that a launcher
// started share the samples.
Evaluated evaluate_checkpoint(const RunConfig& config, const std::filesystem::path& checkpoint,
                              const Registry& registry, const std::atomic<bool>* stop);

// Evaluates a whole model (whole_model.h) on `data`: what data.eval.path would name; empty for kinds
// that read no file. `sets` change keys of the description, as --set. The numbers are those of
// evaluate_checkpoint on the same weights and data.
Evaluated evaluate_whole_model(const std::filesystem::path& file, const std::filesystem::path& data,
                               const std::vector<std::string>& sets, const Registry& registry,
                               const std::atomic<bool>* stop);

}  // namespace tanren
