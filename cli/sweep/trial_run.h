// The run of a trial in its own process: the config that it trains, and its exit code. The exit
// code tells the sweep what summary.json cannot, because a refused run leaves no summary. Used by
// sweep_runner.cpp.
#pragma once

#include "tanren/sweep/confirmation.h"
#include "tanren/sweep/trial.h"
#include "cli/sweep/sweep_place.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace tanren::cli {

// Exit codes of a trial's process, beside 0, 1, 2 and 130 of the verb run.
constexpr int kDivergedCode = 91;     // loss, gradients or weights are not finite
constexpr int kRefusedCode = 92;      // no memory, and no step was begun
constexpr int kOutOfMemoryCode = 93;  // out of memory during training
constexpr int kNoDiskCode = 94;       // a file of the run cannot be written

// A trial's share of the machine.
struct TrialShare {
  std::string device;        // run.device; empty: the config's
  std::string memory_limit;  // memory.limit; empty: the config's
  int64_t threads = 0;       // run.threads, unless the config sets it; 0: the config's
};

struct TrialStart {
  int64_t id = 0;
  TrialValues values;
  std::optional<int64_t> fork_of;  // set in every start of a fork; in Trial, only in the first
  int64_t fork_step = 0;
  std::optional<ConfirmingRun> confirms = {};  // if set, the run has its seed and its folder
  TrialShare share;
  // Updates of this start. 0: only the evaluation that is still missing. Empty: up to the run's
  // end.
  std::optional<int64_t> stop_after = {};
};

// The config of the run in the trial's folder.
RunConfig run_config_of(const SweepPlace& place, const TrialStart& start, const KnownKinds& known);

// Trains the run and returns the exit code. Prints the same as the verb run; the last line is that
// of an error. Throws nothing.
int train_trial(const SweepPlace& place, const TrialStart& start, const std::string& program,
                const Registry& registry) noexcept;

}  // namespace tanren::cli
