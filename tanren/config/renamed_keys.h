// Keys by the names that they had in versions before: a config, a --set and the config that a run wrote
// down may still say those. Called by whatever reads a key.
#pragma once

#include <string>

namespace tanren {

// "parallel.patience" → "parallel.timeout"; any other key as it is.
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
