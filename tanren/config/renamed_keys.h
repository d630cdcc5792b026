// Keys that had other names in earlier versions. A config, a --set and the config that a run
// recorded may still use the old names. Called by all code that reads a key.
#pragma once

#include <string>

namespace tanren {

// "parallel.patience" → "parallel.timeout"; other keys are returned unchanged.
inline std::string current_key(std::string key) {
  struct Renamed {
    const char *before, *now;
  };
  constexpr Renamed kRenamed[] = {{"parallel.data", "parallel.ranks"},
                                  {"parallel.meeting", "parallel.rendezvous"},
                                  {"parallel.patience", "parallel.timeout"}};
  for (const Renamed& renamed : kRenamed) {
    if (key == renamed.before) return renamed.now;
  }
  return key;
}

}  // namespace tanren
