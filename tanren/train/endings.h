// How a run ends that does not reach its end: the lines of its errors, with what was saved of it.
// Called by train_loop.
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

// What went wrong with `work` on some rank, empty: nothing. Returns once all ranks are through.
std::string failure_of(const std::function<void()>& work, const Parts& parts);
// What an error line adds where `unsaved` says why no checkpoint was written.
std::string unsaved_text(const std::string& unsaved);
// "; last checkpoint: …", empty where none are written.
std::string last_checkpoint_text(const std::filesystem::path& checkpoints);
// RunError of the guard's verdict; `unsaved` as above.
[[noreturn]] void halt(const StepReport& report, const ObjectiveReport& objective, const Plan& plan,
                       const std::filesystem::path& checkpoints, const std::string& unsaved);
// A run does not end well with weights that are of no use, whatever ended it.
[[noreturn]] void end_with_ruined_weights(const RunState& run, const Plan& plan,
                                          const std::filesystem::path& checkpoints);
// To be called while an exception is handled: throws one of its kind with `more` behind its line.
[[noreturn]] void rethrow_with(const std::string& more);

// Tells a sink; what one of a user throws becomes a RunError that says so.
void report_to_sink(const std::function<void()>& telling);
// Before a checkpoint, which is written whatever a sink throws. A record that cannot be written
// (RecordError) is to end the run behind it, and is returned; anything else is logged. Null: neither.
std::exception_ptr flush_for_checkpoint(Sink& sink);
// Throws that of a record with the checkpoint behind its line; nothing where there is none.
void end_with_unwritten(const std::exception_ptr& failure, const std::filesystem::path& written);

}  // namespace tanren
