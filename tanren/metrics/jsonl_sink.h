// The log file: one JSON line per attempt and per evaluation (json_line.h), appended by a thread of
// its own, so that the step's thread only copies the report into a bounded ring (no formatting, no
// system call while the ring has room). Lines reach the file within a tenth of a second.
// Threading: step, evaluation and flush are called by one thread at a time. Called by run and by
// own loops, through Sink.
#pragma once

#include "tanren/base/report.h"

#include <cstdint>
#include <filesystem>
#include <memory>

namespace tanren {

// Appends to `file`, made if absent; a torn last line in it is cut off first. RunError if it cannot
// be opened. A disk that fails later surfaces as RunError at the next call of the sink and at every
// one after it; what was half written is taken back, so the file always ends with a whole line.
// flush() returns when everything told so far is written and fsynced. The destructor writes what is
// left and hands an error that no call could tell to the log.
std::unique_ptr<Sink> make_jsonl_sink(const std::filesystem::path& file);

// Cuts the log back to what was told up to `attempt`, evaluations after it included: the first line
// of a later attempt and all that follows go, as does a torn last line. One truncation of the file,
// so it is the old or the new log whatever happens. No file: nothing to do. RunError otherwise.
void truncate_log(const std::filesystem::path& file, int64_t attempt);

}  // namespace tanren
