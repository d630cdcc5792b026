// Times as seconds. Torch-free.
#pragma once

#include <chrono>

namespace tanren {

inline double in_seconds(std::chrono::duration<double> time) { return time.count(); }

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return in_seconds(std::chrono::steady_clock::now() - start);
}

}  // namespace tanren
