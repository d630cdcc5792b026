#include "tanren/base/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace tanren {

std::string to_text(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return {buffer, end};
}

std::string to_text(int64_t value) { return std::to_string(value); }

std::string bytes_text(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (std::abs(bytes) >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  char buffer[48];
  std::snprintf(buffer, sizeof buffer, bytes < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", bytes,
                units[unit]);
  return buffer;
}

std::string seconds_text(double seconds) {
  char buffer[48];
  if (seconds < 60) {
    std::snprintf(buffer, sizeof buffer, "%.1fs", seconds);
    return buffer;
  }
  const auto whole = static_cast<long>(std::min(seconds, 3.6e9));
  if (whole < 3600) {
    std::snprintf(buffer, sizeof buffer, "%ldm%02lds", whole / 60, whole % 60);
  } else {
    std::snprintf(buffer, sizeof buffer, "%ldh%02ldm", whole / 3600, whole / 60 % 60);
  }
  return buffer;
}

}  // namespace tanren
