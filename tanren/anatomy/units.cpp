#include "tanren/anatomy/units.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

namespace tanren {

namespace {

constexpr double kMebibyte = 1 << 20;

double mebibytes(int64_t bytes) { return static_cast<double>(bytes) / kMebibyte; }

// Three digits that count.
std::string short_text(double value) {
  if (value >= 99.95) return fmt::format("{:.0f}", value);
  if (value >= 9.995) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

}  // namespace

std::string mebibytes_text(int64_t bytes) { return fmt::format("{:.1f} MiB", mebibytes(bytes)); }

std::string signed_mebibytes(int64_t bytes) {
  return (bytes < 0 ? "−" : "+") + mebibytes_text(std::abs(bytes));
}

std::string time_text(double seconds) {
  if (seconds >= 1) return short_text(seconds) + " s";
  if (seconds >= 1e-3) return short_text(seconds * 1e3) + " ms";
  return short_text(seconds * 1e6) + " µs";
}

std::string percent_text(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string signed_percent(double share) {
  return fmt::format("{}{:.0f} %", share < 0 ? "−" : "+", std::abs(100 * share));
}

std::string scaled_text(double value) {
  if (value == 0) return "-";
  constexpr const char* kUnits[] = {"", " k", " M", " G", " T", " P"};
  size_t unit = 0;
  while (value >= 999.5 && unit < 5) {
    value /= 1000;
    ++unit;
  }
  return short_text(value) + kUnits[unit];
}

}  // namespace tanren
