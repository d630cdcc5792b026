// The run of a trial, in a process of its own: the config that it trains, and the exit code that
// tells the sweep what a summary.json cannot, since a run that is refused leaves none. Used by
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
constexpr int kOutOfMemoryCode = 93;  // no memory in the middle
constexpr int kNoDiskCode = 94;       // a file of the run cannot be written

// What a trial gets of the machine.
struct TrialShare {
  std::string device;        // run.device; empty: the config's
  std::string memory_limit;  // memory.limit; empty: the config's
  int64_t threads = 0;       // run.threads, unless the config sets it; 0: the config's
};

struct TrialStart {
  int64_t id = 0;
  TrialValues values;
  std::optional<int64_t> fork_of;  // of every start of a fork, as Trial has it of the first
  int64_t fork_step = 0;
  std::optional<ConfirmingRun> confirms = {};  // then it has that seed and that folder
  TrialShare share;
  // Updates of this start; 0: only the evaluation that the run owes. Empty: up to its end.
  std::optional<int64_t> stop_after = {};
};

// The config of the run in the trial's folder.
RunConfig run_config_of(const SweepPlace& place, const TrialStart& start, const KnownKinds& known);

// Trains it and returns the exit code. Prints what the verb run prints; an error's line is the last
// one. Throws nothing.
int train_trial(const SweepPlace& place, const TrialStart& start, const std::string& program,
                const Registry& registry) noexcept;

}  // namespace tanren::cli
