// Shortage: what is known about an allocation that failed. The CPU allocator notes it when it
// refuses, while operator and autograd node are still at work; attempt() adds what the exception
// says.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

struct Shortage {
  std::string message;    // of the allocator, one line
  std::string operation;  // torch's operator that asked ("addmm") or the node of backward; or empty
  std::string block;      // run_block's name; empty: none, or unknown
  bool in_backward = false;
  int64_t bytes = 0;                                    // asked for; 0: unknown
  std::vector<std::pair<std::string, int64_t>> owners;  // live bytes by kind then, largest first
};

// Notes, for this thread, that `bytes` were refused just now.
void note_shortage(int64_t bytes);
// Returns what was noted since the last call; `bytes` is 0 if nothing was.
Shortage take_shortage();

}  // namespace tanren
