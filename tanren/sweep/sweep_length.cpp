#include "tanren/sweep/sweep_length.h"

#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/sweep/confirmation.h"
#include "tanren/sweep/corners.h"
#include "tanren/sweep/scheduler.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

namespace tanren {

namespace {

const DimensionOptions* searched(const RunConfig& config, std::string_view key) {
  const auto& space = config.sweep.space;
  const auto found =
      std::find_if(space.begin(), space.end(),
                   [&](const DimensionOptions& dimension) { return dimension.key == key; });
  return found == space.end() ? nullptr : &*found;
}

int64_t most_of(const DimensionOptions& steps, int64_t most) {
  if (steps.high) most = std::max(most, static_cast<int64_t>(*steps.high));
  for (const std::string& value : steps.values) {
    int64_t number = 0;
    std::from_chars(value.data(), value.data() + value.size(), number);
    most = std::max(most, number);
  }
  return most;
}

// The steps of the longest trial; empty: only the plan of each trial knows.
std::optional<int64_t> most_steps(const RunConfig& config, int64_t planned_steps) {
  if (const DimensionOptions* steps = searched(config, "run.steps")) {
    return most_of(*steps, planned_steps);
  }
  if (steps_of(config) > 0 || needs_planned_steps(config)) return planned_steps;
  return std::nullopt;
}

int64_t trials_of(const RunConfig& config) {
  const int64_t asked = config.sweep.trials;
  if (config.sweep.sampler != "grid") return asked;
  const int64_t points = space_of(config).grid_size();
  return asked == 0 ? points : std::min(asked, points);
}

// "asha (rungs at 50, 200 and 900 steps)"
std::string scheduler_text(const RunConfig& config, std::optional<int64_t> steps) {
  const SweepOptions& options = config.sweep;
  if (options.scheduler != "asha" || !steps) return options.scheduler;
  const int64_t first = options.first_rung > 0 ? options.first_rung : config.evaluate.every;
  std::vector<std::string> rungs;
  for (const int64_t rung : rungs_of(first, options.reduction, *steps)) {
    rungs.push_back(count_text(rung));
  }
  return fmt::format("asha (rungs at {} steps)", join(rungs));
}

}  // namespace

int64_t steps_of(const RunConfig& config) {
  return searched(config, "run.steps") != nullptr ? 0 : config.run.steps.value_or(0);
}

bool needs_planned_steps(const RunConfig& config) {
  if (steps_of(config) > 0) return false;
  const auto& space = config.sweep.space;
  return config.sweep.scheduler != "none" ||
         std::none_of(space.begin(), space.end(), [](const DimensionOptions& dimension) {
           const std::string& key = dimension.key;
           return key.starts_with("run.") || key.starts_with("batch.") || key.starts_with("data.");
         });
}

int64_t trials_at_a_time(const SweepOptions& options) {
  if (options.concurrent > 0) return options.concurrent;
  return std::max<int64_t>(1, std::ssize(options.devices));
}

SweepLine sweep_line(const RunConfig& config, int64_t planned_steps) {
  const SweepOptions& options = config.sweep;
  const int64_t trials = trials_of(config);
  const auto steps = most_steps(config, planned_steps);
  SweepLine line;
  line.value =
      fmt::format("{} trials, {} at a time", count_text(trials), trials_at_a_time(options));
  line.reason = "by " + options.sampler;
  if (options.scheduler != "none") line.reason += " and " + scheduler_text(config, steps);
  if (!steps) {
    line.reason += "; how many steps depends on the values of each trial";
  } else {
    line.reason += fmt::format("; at most {} steps", count_text(trials * *steps));
  }
  if (options.confirm == 0) return line;
  const int64_t runs = options.confirm * (1 + std::min(trials, kMostConfirmed));
  line.reason += fmt::format(", then {} runs", runs);
  if (steps) line.reason += fmt::format(" of {} steps", count_text(*steps));
  line.reason += " to confirm";
  return line;
}

}  // namespace tanren
