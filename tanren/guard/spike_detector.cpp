#include "tanren/guard/spike_detector.h"

#include <algorithm>
#include <cmath>

namespace tanren {

// A value that hardly moves has no meaningful deviation, so the lower bound is a thousandth of its
// mean.
double RunningLevel::deviation() const {
  return std::max({std::sqrt(variance_), 1e-3 * std::abs(mean_), 1e-12});
}

double RunningLevel::z(double value, int64_t window) const {
  return count_ < window ? 0 : (value - mean_) / deviation();
}

void RunningLevel::add(double value, int64_t window, double cut) {
  if (count_ >= window) value = std::min(value, mean_ + cut * deviation());
  ++count_;
  // A plain mean at first: the first value must not weigh as much as a whole window.
  const double share =
      std::max(1.0 / static_cast<double>(count_), 2.0 / (static_cast<double>(window) + 1));
  const double away = value - mean_;
  mean_ += share * away;
  variance_ = (1 - share) * (variance_ + share * away * away);
}

void RunningLevel::save(State& state, const std::string& name) const {
  state.values[name + ".mean"] = mean_;
  state.values[name + ".variance"] = variance_;
  state.values[name + ".count"] = count_;
}

void RunningLevel::load(const State& state, const std::string& name) {
  mean_ = value_of<double>(state, name + ".mean");
  variance_ = value_of<double>(state, name + ".variance");
  count_ = value_of<int64_t>(state, name + ".count");
}

std::optional<Spike> SpikeDetector::look(double loss, double grad_norm) {
  if (threshold_ == 0) return std::nullopt;
  const Spike of_loss{"loss", loss, loss_.mean(), loss_.z(loss, window_)};
  const Spike of_norm{"grad_norm", grad_norm, grad_norm_.mean(), grad_norm_.z(grad_norm, window_)};
  loss_.add(loss, window_, threshold_);
  grad_norm_.add(grad_norm, window_, threshold_);
  const Spike& worse = of_loss.z >= of_norm.z ? of_loss : of_norm;
  return worse.z > threshold_ ? std::optional(worse) : std::nullopt;
}

void SpikeDetector::save(State& state) const {
  loss_.save(state, "spike.loss");
  grad_norm_.save(state, "spike.grad_norm");
}

void SpikeDetector::load(const State& state) {
  loss_.load(state, "spike.loss");
  grad_norm_.load(state, "spike.grad_norm");
}

}  // namespace tanren
