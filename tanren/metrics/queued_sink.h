// A sink whose file is written by its own thread: the step's thread only copies the report into a
// bounded ring (no formatting, no system call while the ring has room), and reports reach the file
// within a tenth of a second. A ReportFormat turns them into bytes.
// Threading: step, evaluation and flush are called by one thread at a time; the format runs on the
// writer's thread. Called by the sinks of log.jsonl and of TensorBoard.
#pragma once

#include "tanren/base/error.h"
#include "tanren/base/report.h"
#include "tanren/metrics/append_file.h"

#include <cstddef>
#include <memory>
#include <string>

namespace tanren {

// A record (QueuedOptions::is_record) cannot be written.
class RecordError final : public DiskError {
 public:
  using DiskError::DiskError;
};

class ReportFormat {
 public:
  virtual ~ReportFormat() = default;
  // Appends the bytes that the file holds for the report, or nothing. wall_time: when the sink got
  // the report, in seconds since 1970.
  virtual void append(const StepReport& report, double wall_time, std::string& out) = 0;
  virtual void append(const EvaluationReport& report, double wall_time, std::string& out) = 0;
  // Pictures are copied into the ring only for a format that takes them.
  virtual bool takes_images() const { return false; }
  virtual void append(const ImageReport&, double /*wall_time*/, std::string& /*out*/) {}
};

struct QueuedOptions {
  // true, a record: flush() makes the file whole or throws RecordError, as does every call once
  // more than max_waiting bytes wait for the disk. false, a view: bytes beyond that are dropped,
  // flush() always returns, and nothing throws.
  bool is_record = true;
  size_t max_waiting = size_t{64} << 20;
};

// The wall-clock time, in seconds since 1970.
double unix_seconds();

// While writing fails, bytes wait in memory and the run continues; one warning is logged, and one
// line when the file is whole again. The destructor writes what is left.
std::unique_ptr<Sink> make_queued_sink(std::unique_ptr<AppendFile> file,
                                       std::unique_ptr<ReportFormat> format,
                                       const QueuedOptions& options);

}  // namespace tanren
