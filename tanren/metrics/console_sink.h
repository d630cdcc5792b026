// Prints the run to a console: a progress bar on a terminal, plain lines otherwise. Writes only to
// the given stream; the command line owns the terminal. Rates come from this session's reports
// only, so a resumed run does not count what was trained before. For one thread.
#pragma once

#include "tanren/base/report.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <ostream>

namespace tanren {

struct ConsoleOptions {
  int64_t total_steps = 0;       // of the whole run; 0: unknown, no bar and no eta
  int64_t console_every = 1;     // applied steps between lines; skips and evaluations always show
  bool terminal = false;         // redraw one line
  int64_t width = 100;           // columns of the terminal
  double refresh_seconds = 0.1;  // least time between redraws of the bar and flushes of lines
  int64_t spike_window = 0;      // applied steps after a spike in which others are only counted
  std::filesystem::path proc;    // /proc, for the waits for cores; empty: not read
};

// `out` must outlive the sink. The destructor ends a drawn bar with a line feed, and prints how
// many spikes had no line.
std::unique_ptr<Sink> make_console_sink(std::ostream& out, const ConsoleOptions& options);

}  // namespace tanren
