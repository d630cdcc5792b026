#include "tanren/page/units.h"

#include "tanren/base/text.h"

#include <cmath>
#include <cstdlib>

namespace tanren {

namespace {

constexpr double kMebibyte = 1 << 20;

double mebibytes(int64_t bytes) { return static_cast<double>(bytes) / kMebibyte; }

// Three significant digits.
std::string short_text(double value) {
  if (value >= 99.95) return fixed_text(value, 0);
  if (value >= 9.995) return fixed_text(value, 1);
  return fixed_text(value, 2);
}

}  // namespace

std::string mebibytes_text(int64_t bytes) { return fixed_text(mebibytes(bytes), 1) + " MiB"; }

std::string signed_mebibytes(int64_t bytes) {
  return (bytes < 0 ? "−" : "+") + mebibytes_text(std::abs(bytes));
}

std::string time_text(double seconds) {
  if (seconds >= 1) return short_text(seconds) + " s";
  if (seconds >= 1e-3) return short_text(seconds * 1e3) + " ms";
  return short_text(seconds * 1e6) + " µs";
}

std::string percent_text(double share) { return fixed_text(100 * share, 1) + " %"; }

std::string signed_percent(double share) {
  return (share < 0 ? "−" : "+") + fixed_text(std::abs(100 * share), 0) + " %";
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
