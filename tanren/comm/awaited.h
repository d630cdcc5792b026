// What a rank waits for, and which rank holds it up in the end. Torch-free. Called by the
// communicators and the control channel.
#pragma once

#include "tanren/base/text.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tanren {

struct Awaited {
  int rank = -1;     // of a message: the other, in the world; -1: it waits for no message
  std::string what;  // "rank 3 to send the gradient of microbatch 2 (4096 bytes)", "a sum over
                     // ranks 2, 3"; empty: it waits for no rank
  // Of an operation of several ranks: the index of their part (ControlPart), and its number there,
  // from 1 on; 0: it waits for none.
  size_t part = 0;
  int64_t number = 0;
};

// `rank` to send the message to this one, or to take it. `what` may be empty.
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

  // The rank at the end of the waits that begin with those of `rank`. If they are a ring, a rank in
  // it.
  int holder(int rank) const;
  // What a holder does, when it answers: "it waits for no other rank; …".
  std::string of_holder(int rank) const;
  // What a rank does that others wait for: what it waits for itself, and which rank holds it up.
  std::string of_late(int rank) const;
};

// "holds up rank 0, which has waited 5 s (parallel.timeout) for rank 1 to send …"
inline std::string holding_up(int rank, double seconds, const Awaited& awaited) {
  return fmt::format("holds up rank {}, which has waited {} s (parallel.timeout) for {}", rank,
                     seconds, awaited.what);
}

// A failure as a rank that waited for a message tells it.
std::string told_while_waiting(const std::string& why, int rank, const Awaited& awaited);
// A line as it was before told_while_waiting().
std::string without_waits(const std::string& told);

}  // namespace tanren
