// Awaited: what a rank waits for. Waits: finds the rank that holds up a waiting rank in the end.
// Torch-free. Called by the communicators and the control channel.
#pragma once

#include "tanren/base/text.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tanren {

struct Awaited {
  int rank = -1;     // message: the other rank, in the world; -1: it waits for no message
  std::string what;  // "rank 3 to send the gradient of microbatch 2 (4096 bytes)", "a sum over
                     // ranks 2, 3"; empty: it waits for no rank
  // Collective operation: the index of its part (ControlPart), and its number in that part, counted
  // from 1; 0: it waits for no operation.
  size_t part = 0;
  int64_t number = 0;
};

// A wait until `rank` sends a message to this rank, or takes one from it. `what` may be empty.
inline Awaited awaited_message(int rank, bool is_sent_by_it, const std::string& what,
                               int64_t bytes) {
  return {rank, fmt::format("rank {} to {} {} ({} bytes)", rank, is_sent_by_it ? "send" : "take",
                            what.empty() ? "a message" : what, bytes)};
}

// "rank 2"; "ranks 2, 3"; "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4 more".
std::string text_of_ranks(const std::vector<int>& ranks);

// The waits of all ranks at one moment.
struct Waits {
  size_t num_ranks;
  std::function<int(int rank)> next;          // the rank that it waits for; below 0: none
  std::function<std::string(int rank)> what;  // Awaited::what
  // "step 7"; null: not known.
  std::function<std::string(int rank)> place = nullptr;
  std::function<bool(int rank)> has_left = nullptr;  // null: none has

  // Follows the waits from `rank` on and returns the last rank. If they form a ring, returns a rank
  // in it.
  int holder(int rank) const;
  // What a holder whose process answers is doing: "it waits for no other rank; …".
  std::string of_holder(int rank) const;
  // What a late rank is doing: what it waits for itself, and which rank holds it up.
  std::string of_late(int rank) const;
};

// "holds up rank 0, which has waited 5 s (parallel.timeout) for rank 1 to send …"
inline std::string holding_up(int rank, double seconds, const Awaited& awaited) {
  return fmt::format("holds up rank {}, which has waited {} s (parallel.timeout) for {}", rank,
                     seconds, awaited.what);
}

// The text of a failure on a rank that waited for a message: `why` and what the rank waited for.
std::string told_while_waiting(const std::string& why, int rank, const Awaited& awaited);
// The text without what told_while_waiting() added.
std::string without_waits(const std::string& told);

}  // namespace tanren
