// The run on a console: a progress bar on a terminal, plain lines otherwise. Writes to the stream it
// is given and nowhere else; the command line owns the terminal. Rates come from this session's
// reports alone, so a resumed run does not count what was trained before. One thread.
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
  double refresh_seconds = 0.1;  // the bar is redrawn, and lines pushed out, at most so often
  int64_t spike_window = 0;      // applied steps after a spike in which others are counted alone
  std::filesystem::path proc;    // where the kernel tells who waits for cores; empty: not asked
};

// `out` must outlive the sink. The destructor ends a drawn bar with a line feed, and tells how many spikes
// had no line.
std::unique_ptr<Sink> make_console_sink(std::ostream& out, const ConsoleOptions& options);

}  // namespace tanren
