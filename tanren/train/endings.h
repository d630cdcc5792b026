// How a run ends before its planned end: the lines of its errors, including what was saved. Called
// by train_loop.
#pragma once

#include "tanren/base/report.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

#include <exception>
#include <filesystem>
#include <functional>
#include <string>

namespace tanren {

inline constexpr const char* kRuinedWeights = "the weights are not finite";

// Runs `work` and returns what failed on this or another rank; empty if nothing failed. Returns
// once all ranks have finished `work`.
std::string failure_of(const std::function<void()>& work, const Parts& parts);
// The part of an error line that says why no checkpoint was written. `unsaved` is that reason; if
// it is empty, so is the result.
std::string unsaved_text(const std::string& unsaved);
// "; last checkpoint: …"; empty if the run writes no checkpoints.
std::string last_checkpoint_text(const std::filesystem::path& checkpoints);
// Throws the NonFiniteError for the guard's verdict; `unsaved` as above.
[[noreturn]] void halt(const StepReport& report, const ObjectiveReport& objective, const Plan& plan,
                       const std::filesystem::path& checkpoints, const std::string& unsaved);
// Throws the NonFiniteError for weights that are not finite. A run with such weights has failed,
// whatever ended it.
[[noreturn]] void end_with_ruined_weights(const RunState& run, const Plan& plan,
                                          const std::filesystem::path& checkpoints);
// Call this while an exception is handled: throws one of the same kind with `more` after its line.
[[noreturn]] void rethrow_with(const std::string& more);

// Runs `telling`, which calls a sink. A user's exception becomes a RunError that says the sink
// failed.
void report_to_sink(const std::function<void()>& telling);
// Call this before writing a checkpoint, which is written whatever a sink throws. Returns a
// RecordError (a record cannot be written), which must end the run after the checkpoint; logs any
// other exception. Null if there was no RecordError.
std::exception_ptr flush_for_checkpoint(Sink& sink);
// Throws the RecordError with the checkpoint after its line; does nothing if `failure` is null.
void end_with_unwritten(const std::exception_ptr& failure, const std::filesystem::path& written);

}  // namespace tanren
