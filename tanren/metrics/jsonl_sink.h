// The log file: one JSON line per attempt and per evaluation (json_line.h), appended by a thread of
// its own (queued_sink.h). It is the run's record: a checkpoint stands only on a log that is whole.
// Threading: step, evaluation and flush are called by one thread at a time. Called by run and by
// own loops, through Sink.
#pragma once

#include "tanren/base/report.h"
#include "tanren/metrics/queued_sink.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

// Appends to `file`, made if absent; a torn last line in it is cut off first. RunError if it cannot
// be opened. While the disk is full, lines wait in memory (up to 64 MiB, then every call throws
// RunError), one warning goes to the log and the file ends with a whole line. flush() returns when
// everything told so far is written and fsynced, and throws RunError if it cannot be.
// `before_step`: lines that are no report and belong before the next attempt, so that they go with its
// line where the log is cut: each begins with {"from_attempt":<the attempt>. They are written with it.
std::unique_ptr<Sink> make_jsonl_sink(const std::filesystem::path& file,
                                      const std::vector<std::string>& before_step = {});

// The lines themselves, for a queued sink with other options.
std::unique_ptr<ReportFormat> make_json_format();

// Cuts the log back to what was told up to `attempt`, evaluations after it included: the first line
// of a later attempt and all that follows go, as does a torn last line. One truncation of the file,
// so it is the old or the new log whatever happens. No file: nothing to do. RunError otherwise.
// `keeps_evaluation`: false where the evaluation after `attempt` is made again, so that its line goes.
void truncate_log(const std::filesystem::path& file, int64_t attempt, bool keeps_evaluation = true);

// The loss of `attempt`, if it is the log's last; none: no such line.
std::optional<double> last_loss(const std::filesystem::path& file, int64_t attempt);

// Whether some line of the log ends so. No file: none does.
bool has_line_ending(const std::filesystem::path& file, const std::string& end);

}  // namespace tanren
