// A whole run: config → plan → run folder → build → loop → summary. What `tanren run`, `plan` and
// `eval` do, without printing: the caller owns the terminal.
#pragma once

#include "tanren/base/report.h"
#include "tanren/config/run_config.h"
#include "tanren/metrics/summary.h"
#include "tanren/model/registry.h"
#include "tanren/plan/plan.h"
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
  std::filesystem::path folder;             // of the run
  std::vector<Sink*> sinks;                 // beside the log file's
  const std::atomic<bool>* stop = nullptr;  // set: save and stop
  // Told once the plan is made and before the first step.
  std::function<void(const Plan&, const std::optional<std::filesystem::path>& resumed_from)>
      started;
  double started_at = 0;  // seconds this process has lived before run() was called
};

struct RunOutput {
  Summary summary;
  LoopResult loop;
};

// Trains. Errors as train_loop and RunFolder.
RunOutput run(const RunInput& input, const ModelRegistry& models);

// Plans and starts nothing: no folder, no step.
Plan plan_only(const RunConfig& config, const ModelRegistry& models);

// Evaluates the newest checkpoint (or `checkpoint`) of the run folder on its evaluation data.
EvaluationReport evaluate_checkpoint(const RunConfig& config,
                                     const std::filesystem::path& checkpoint,
                                     const ModelRegistry& models, const std::atomic<bool>* stop);

}  // namespace tanren
