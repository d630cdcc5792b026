#include "tanren/precision/loss_scaler.h"

#include <ATen/ops/mul.h>

#include <algorithm>

namespace tanren {

LossScaler::LossScaler(const PrecisionPlan& plan)
    : scaling_(plan.scaling),
      first_scale_(plan.find_initial_scale ? 0.0 : plan.initial_scale),
      growth_factor_(plan.growth_factor),
      backoff_factor_(plan.backoff_factor),
      growth_interval_(plan.growth_interval),
      min_scale_(plan.min_scale),
      max_scale_(plan.max_scale),
      scale_(plan.scaling == Scaling::none ? 1.0 : plan.initial_scale),
      wants_search_(plan.scaling == Scaling::dynamic && plan.find_initial_scale) {
  if (scaling_ == Scaling::dynamic) scale_ = std::min(scale_, std::max(min_scale_, max_scale_));
}

double LossScaler::within_bounds(double scale) const {
  return std::clamp(scale, min_scale_, std::max(min_scale_, max_scale_));
}

at::Tensor LossScaler::scaled(const at::Tensor& loss) const {
  return scale_ == 1.0 ? loss : at::mul(loss, scale_);
}

bool LossScaler::can_back_off() const {
  return scaling_ == Scaling::dynamic && scale_ > min_scale_;
}

void LossScaler::update(Cause cause) {
  if (scaling_ != Scaling::dynamic) return;
  if (cause == Cause::overflow) {
    scale_ = within_bounds(scale_ * backoff_factor_);
    quiet_steps_ = 0;
  } else if ((cause == Cause::none || cause == Cause::spike) &&
             ++quiet_steps_ >= growth_interval_) {
    scale_ = within_bounds(scale_ * growth_factor_);
    quiet_steps_ = 0;
  }
}

void LossScaler::set_searched(double scale) {
  scale_ = within_bounds(scale);
  wants_search_ = false;
}

void LossScaler::start_from(const LossScale& found) {
  if (scaling_ != Scaling::dynamic) return;
  set_searched(found.scale);
  quiet_steps_ = found.quiet_steps;
}

std::string LossScaler::kind() const {
  return scaling_ == Scaling::none ? "none" : scaling_ == Scaling::fixed ? "static" : "dynamic";
}

State LossScaler::state() const {
  State state;
  state.values["scaling"] = kind();
  state.values["first_scale"] = first_scale_;
  state.values["scale"] = scale_;
  state.values["quiet_steps"] = quiet_steps_;
  state.values["wants_search"] = wants_search_;
  return state;
}

void LossScaler::load(const State& state) {
  if (scaling_ == Scaling::none) return;
  const bool says_kind = state.values.count("scaling") > 0;  // older checkpoints do not
  if (says_kind && (value_of<std::string>(state, "scaling") != kind() ||
                    value_of<double>(state, "first_scale") != first_scale_)) {
    return;
  }
  const auto scale = value_of<double>(state, "scale");
  // Older runs without scaling stored 1, a scale that was never found to fit.
  const bool found_nothing = !says_kind && scale == 1 &&
                             value_of<int64_t>(state, "quiet_steps") == 0 &&
                             !value_of<bool>(state, "wants_search");
  if (found_nothing) return;
  scale_ = scaling_ == Scaling::dynamic ? within_bounds(scale) : scale;
  quiet_steps_ = value_of<int64_t>(state, "quiet_steps");
  wants_search_ = value_of<bool>(state, "wants_search");
}

}  // namespace tanren
