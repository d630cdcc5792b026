#include "tanren/precision/loss_scaler.h"

#include <ATen/ops/mul.h>

#include <algorithm>

namespace tanren {

namespace {
// fp32 holds the scaled seed of a backward; beyond this the seed itself would overflow.
constexpr double kMaxScale = 0x1p120;
}  // namespace

LossScaler::LossScaler(const PrecisionPlan& plan)
    : scaling_(plan.scaling),
      first_scale_(plan.find_initial_scale ? 0.0 : plan.initial_scale),
      growth_factor_(plan.growth_factor),
      backoff_factor_(plan.backoff_factor),
      growth_interval_(plan.growth_interval),
      min_scale_(plan.min_scale),
      scale_(plan.scaling == Scaling::none ? 1.0 : plan.initial_scale),
      wants_search_(plan.scaling == Scaling::dynamic && plan.find_initial_scale) {}

at::Tensor LossScaler::scaled(const at::Tensor& loss) const {
  return scale_ == 1.0 ? loss : at::mul(loss, scale_);
}

bool LossScaler::can_back_off() const {
  return scaling_ == Scaling::dynamic && scale_ > min_scale_;
}

void LossScaler::update(Cause cause) {
  if (scaling_ != Scaling::dynamic) return;
  if (cause == Cause::overflow) {
    scale_ = std::max(scale_ * backoff_factor_, min_scale_);
    quiet_steps_ = 0;
  } else if ((cause == Cause::none || cause == Cause::spike) &&
             ++quiet_steps_ >= growth_interval_) {
    scale_ = std::min(scale_ * growth_factor_, kMaxScale);
    quiet_steps_ = 0;
  }
}

void LossScaler::set_searched(double scale) {
  scale_ = std::max(scale, min_scale_);
  wants_search_ = false;
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
  scale_ = std::max(scale, scaling_ == Scaling::dynamic ? min_scale_ : 0);
  quiet_steps_ = value_of<int64_t>(state, "quiet_steps");
  wants_search_ = value_of<bool>(state, "wants_search");
}

}  // namespace tanren
