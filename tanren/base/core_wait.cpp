#include "tanren/base/core_wait.h"

#include <cmath>
#include <sstream>
#include <string>

namespace tanren {

namespace {

std::optional<double> number_at_start(std::string_view text) {
  double value = 0;
  std::istringstream in{std::string(text)};
  if (!(in >> value) || !std::isfinite(value) || value < 0) return std::nullopt;
  return value;
}

}  // namespace

std::optional<double> seconds_waited(std::string_view schedstat) {
  const auto space = schedstat.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const auto nanoseconds = number_at_start(schedstat.substr(space + 1));
  if (!nanoseconds) return std::nullopt;
  return *nanoseconds * 1e-9;
}

std::optional<double> share_of_pressure(std::string_view pressure) {
  constexpr std::string_view kStart = "some avg10=";
  if (pressure.substr(0, kStart.size()) != kStart) return std::nullopt;
  const auto percent = number_at_start(pressure.substr(kStart.size()));
  if (!percent) return std::nullopt;
  return *percent / 100;
}

}  // namespace tanren
