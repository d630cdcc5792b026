#include "tanren/optimizer/plateau.h"

#include "tanren/base/error.h"
#include "tanren/config/kinds.h"

#include <algorithm>
#include <limits>

namespace tanren {

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// torch's eps: a smaller change of the rate is not made.
constexpr double kLeastChange = 1e-8;
}  // namespace

Plateau::Plateau(const ScheduleOptions& options, double peak)
    : options_(options), peak_(peak), is_on_(reads_evaluations(options)) {
  if (is_on_ && options.mode != "min" && options.mode != "max") {
    throw ConfigError("[schedule] mode '" + options.mode + "' is unknown here; give min or max");
  }
  best_ = options.mode == "max" ? -kInfinity : kInfinity;
}

bool Plateau::better(double metric) const {
  const bool max = options_.mode == "max";
  const double sign = max ? 1 : -1;
  const double bar = options_.threshold_mode == "rel" ? best_ * (1 + sign * options_.threshold)
                                                      : best_ + sign * options_.threshold;
  return max ? metric > bar : metric < bar;
}

bool Plateau::observe(double metric) {
  if (!is_on_) return false;
  if (better(metric)) {
    best_ = metric;
    num_bad_ = 0;
  } else {
    ++num_bad_;
  }
  if (cooldown_ > 0) {
    --cooldown_;
    num_bad_ = 0;
  }
  if (num_bad_ <= options_.patience) return false;
  const double reduced = std::max(scale_ * options_.factor, options_.final_fraction);
  const bool changes = (scale_ - reduced) * peak_ > kLeastChange;
  if (changes) scale_ = reduced;
  cooldown_ = options_.cooldown;
  num_bad_ = 0;
  return changes;
}

State Plateau::state() const {
  State state;
  if (!is_on_) return state;
  state.values["scale"] = scale_;
  // JSON has no infinity: before the first evaluation there is no best value.
  if (best_ != kInfinity && best_ != -kInfinity) state.values["best"] = best_;
  state.values["num_bad"] = num_bad_;
  state.values["cooldown"] = cooldown_;
  return state;
}

void Plateau::load(const State& state) {
  if (!is_on_ || state.values.empty()) return;
  scale_ = value_of<double>(state, "scale");
  best_ = state.values.count("best") > 0 ? value_of<double>(state, "best")
          : options_.mode == "max"       ? -kInfinity
                                         : kInfinity;
  num_bad_ = value_of<int64_t>(state, "num_bad");
  cooldown_ = value_of<int64_t>(state, "cooldown");
}

}  // namespace tanren
