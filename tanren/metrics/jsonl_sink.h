// The log file: one JSON line per attempt and per evaluation (json_line.h), appended by a thread of
// its own (queued_sink.h). It is the run's record: a run whose log cannot be written ends after the
// checkpoint. Threading: step, evaluation and flush are called by one thread at a time. Called by
// run and by own loops, through Sink.
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

// Appends to `file`, which is created if absent; a torn last line in it is cut off first. RunError
// if it cannot be opened. While the disk is full, lines wait in memory (up to 64 MiB, then every
// call throws RunError), one warning is logged and the file ends with a whole line. flush() returns
// when all reports so far are written and fsynced, and throws RunError if that fails.
// `before_step`: lines that are not reports. They are written before the line of the next attempt,
// together with it. Each begins with {"from_attempt":<the attempt>, so that truncate_log removes it
// with the attempt's line.
std::unique_ptr<Sink> make_jsonl_sink(const std::filesystem::path& file,
                                      const std::vector<std::string>& before_step = {});

// The format of the lines, for a queued sink with other options.
std::unique_ptr<ReportFormat> make_json_format();

// Cuts the log back to `attempt` and the evaluations after it: removes the first line of a later
// attempt and all that follow, and a torn last line. The file is truncated once, so after a crash
// it is the old or the new log. Does nothing if there is no file; RunError otherwise.
// `keeps_evaluation`: false if the evaluation after `attempt` is made again, so that its line is
// removed.
void truncate_log(const std::filesystem::path& file, int64_t attempt, bool keeps_evaluation = true);

// The loss of `attempt`, if it is the last one with a whole line in the log; else nullopt. Reads
// the end of the file alone.
std::optional<double> last_loss(const std::filesystem::path& file, int64_t attempt);

// Whether a line of the log ends with `end`. False if there is no file.
bool has_line_ending(const std::filesystem::path& file, const std::string& end);

}  // namespace tanren
