#include "tanren/optimizer/schedule.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tanren {

double learning_rate(const ScheduleOptions& options, double peak, int64_t step,
                     int64_t total_steps) {
  const auto warmup = static_cast<double>(options.warmup_steps);
  const auto now = static_cast<double>(step);
  const bool constant = options.kind == "constant";
  const bool linear = options.kind == "linear";
  if (!constant && !linear && options.kind != "cosine") {
    const std::vector<std::string> kinds = {"constant", "linear", "cosine"};
    const std::string near = nearest(options.kind, kinds);
    throw ConfigError("[schedule] kind '" + options.kind + "' is unknown; " +
                      (near.empty() ? "there are " + join(kinds) : "did you mean '" + near + "'?"));
  }
  if (now < warmup) return peak * (now + 1) / warmup;
  if (constant) return peak;
  const double length = std::max(1.0, static_cast<double>(total_steps) - warmup);
  const double progress = std::clamp((now - warmup) / length, 0.0, 1.0);
  const double left = linear ? 1 - progress : 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return peak * (options.final_fraction + (1 - options.final_fraction) * left);
}

}  // namespace tanren
