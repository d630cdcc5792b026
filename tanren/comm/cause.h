// The text with which one rank's failure ends the waits of all ranks. Torch-free. Called by the
// communicators and the control channel.
#pragma once

#include "tanren/base/text.h"

#include <string>

namespace tanren {

// "[comm] rank 2: <why>"; `why` unchanged if it already names a rank.
inline std::string cause_text(int rank, const std::string& why) {
  if (why.rfind("[comm] rank ", 0) == 0) return why;
  return "[comm] rank " + to_text(rank) + ": " + why;
}

}  // namespace tanren
