// The terminal that a verb writes to. Used by monitor.cpp, run.cpp and the sweep.
#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

namespace tanren::cli {

inline bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }

// The size of the terminal of stdout; 24 rows of 100 columns if it is unknown.
inline winsize terminal_size() {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size : winsize{.ws_row = 24, .ws_col = 100};
}

}  // namespace tanren::cli
