// Cutting TensorBoard's event files back to a checkpoint, as log.jsonl is: what came after it is
// trained, and written, again. Called by the TensorBoard sink before it opens a file of its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace tanren {

// The event files of a folder in the order in which TensorBoard reads them (by name).
std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder);

// Removes every record of a step after `step`, with all that follows it in its file, and torn or
// broken records; a file of a session that began after `step` goes altogether. Files that begin
// without a session start are another program's and stay. `repeats_evaluation`: the evaluation of
// `step` is made again, so its records go, too. RunError where a file cannot be cut.
void cut_events(const std::filesystem::path& folder, int64_t step, bool repeats_evaluation = false);

}  // namespace tanren
