// The text by which a failure of one rank ends the waits of all. Torch-free. Called by the
// communicators and the control channel.
#pragma once

#include <string>

namespace tanren {

// "[comm] rank 2: <why>"; as it is where it says a rank already.
inline std::string cause_text(int rank, const std::string& why) {
  if (why.rfind("[comm] rank ", 0) == 0) return why;
  return "[comm] rank " + std::to_string(rank) + ": " + why;
}

}  // namespace tanren
