// Cuts TensorBoard's event files back to a checkpoint, like log.jsonl: the steps after it are
// trained, and written, again. Called by the TensorBoard sink before it opens its own file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace tanren {

// The event files of a folder in the order in which TensorBoard reads them (by name).
std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder);

// Cuts each file at the first record of a step after `step`, or at a torn or broken record. Removes
// a file whose session begins after `step`, unless it holds an evaluation of `step`, and a file
// that ends before its session start. Other files that do not begin with a session start are
// another program's and stay. `repeats_evaluation`: the evaluation of `step` is made again, so a
// file is cut at its first record. RunError if a file cannot be cut.
void cut_events(const std::filesystem::path& folder, int64_t step, bool repeats_evaluation = false);

}  // namespace tanren
