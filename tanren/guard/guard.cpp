#include "tanren/guard/guard.h"

namespace tanren {

Guard::Guard(const GuardOptions& options)
    : stop_on_loss_(options.nan_loss == "stop"),
      stop_on_gradient_(options.nan_gradient == "stop"),
      max_skips_(options.max_skips),
      spikes_(options) {}

Verdict Guard::judge(const Evidence& evidence) {
  spike_.reset();
  if (!evidence.counted) return {Action::skip, Cause::nothing_counted};
  if (!evidence.loss_finite) return refuse(stop_on_loss_, Cause::nan_loss);
  if (!evidence.gradients_finite) {
    if (evidence.can_back_off) return {Action::skip, Cause::overflow};
    return refuse(stop_on_gradient_, Cause::nan_gradient);
  }
  skips_in_a_row_ = 0;
  if (evidence.loss && evidence.grad_norm) {
    spike_ = spikes_.look(*evidence.loss, *evidence.grad_norm);
  }
  return {Action::apply, spike_ ? Cause::spike : Cause::none};
}

Verdict Guard::refuse(bool stop, Cause cause) {
  ++skips_in_a_row_;
  if (!stop && skips_in_a_row_ < max_skips_) return {Action::skip, cause};
  skips_in_a_row_ = 0;  // a run that continues after a halt starts a new row
  return {Action::halt, cause, /*at_max_skips=*/!stop};
}

State Guard::state() const {
  State state;
  state.values["skips_in_a_row"] = skips_in_a_row_;
  spikes_.save(state);
  return state;
}

void Guard::load(const State& state) {
  skips_in_a_row_ = value_of<int64_t>(state, "skips_in_a_row");
  spikes_.load(state);
}

}  // namespace tanren
