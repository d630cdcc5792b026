// What a rank waits for when it waits for another rank's message, and which rank holds it up in the
// end. Torch-free. Called by the communicators and the control channel.
#pragma once

#include "tanren/base/text.h"

#include <string>
#include <vector>

namespace tanren {

struct Awaited {
  int rank = -1;     // in the world; -1: it waits for no message
  std::string what;  // "rank 3 to send the gradient of microbatch 2 (4096 bytes)"
};

// `rank` to send the message to this one, or to take it. `what` may be empty.
inline Awaited awaited_message(int rank, bool is_sent_by_it, const std::string& what,
                               int64_t bytes) {
  return {rank, fmt::format("rank {} to {} {} ({} bytes)", rank, is_sent_by_it ? "send" : "take",
                            what.empty() ? "a message" : what, bytes)};
}

// The rank at the end of the waits that begin with the one for `rank`; `all` by rank. If they are a
// ring, a rank in it.
inline int holder_of(const std::vector<Awaited>& all, int rank) {
  std::vector<bool> seen(all.size(), false);
  while (!seen[static_cast<size_t>(rank)] && all[static_cast<size_t>(rank)].rank >= 0) {
    seen[static_cast<size_t>(rank)] = true;
    rank = all[static_cast<size_t>(rank)].rank;
  }
  return rank;
}

// What the rank that holds others up does, when it answers.
inline std::string what_holds(const Awaited& awaited) {
  if (awaited.rank < 0) return "it waits for no message; its own code does not come back";
  return "it waits itself for " + awaited.what + "; the messages of the two do not match";
}

// "holds up rank 0, which has waited 5 s (parallel.timeout) for rank 1 to send …"
inline std::string holding_up(int rank, double seconds, const Awaited& awaited) {
  return fmt::format("holds up rank {}, which has waited {} s (parallel.timeout) for {}", rank,
                     seconds, awaited.what);
}

// A failure as a rank that waited for a message tells it.
inline std::string told_while_waiting(const std::string& why, int rank, const Awaited& awaited) {
  if (awaited.rank < 0 || why.find(awaited.what) != std::string::npos) return why;
  return fmt::format("{}; rank {} waited for {}", why, rank, awaited.what);
}

}  // namespace tanren
