// How a run ends that cannot go on: the lines of its last error, with the checkpoint there is and the
// command that goes on from it. Used by train_loop.
#pragma once

#include "tanren/base/report.h"
#include "tanren/plan/plan.h"
#include "tanren/train/run_state.h"

#include <filesystem>
#include <string>

namespace tanren {

constexpr const char* kRuinedWeights = "the weights are not finite";

// RunError: the guard refused an update. `unsaved`: why its state could not be written; empty: it is.
[[noreturn]] void halt(const StepReport& report, const ObjectiveReport& objective, const Plan& plan,
                       const std::filesystem::path& checkpoints, const std::string& unsaved);

// RunError: a run does not end well with weights that are of no use, whatever ended it.
[[noreturn]] void end_with_ruined_weights(const RunState& run, const Plan& plan,
                                          const std::filesystem::path& checkpoints);

// What an error line adds where the state before it could not be written.
std::string unsaved_text(const std::string& unsaved);

}  // namespace tanren
