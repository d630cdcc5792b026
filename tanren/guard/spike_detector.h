// SpikeDetector: finds values far above their running mean, by z-score. Mean and variance are
// exponential (span `window`). It reports nothing before a window is seen. A spike is cut to the
// threshold before it enters mean and variance. So it does not hide the next spike, and a new level
// is still learnt. Pure arithmetic on doubles: equal values give bitwise equal answers, and its
// state resumes exactly. Used by Guard.
#pragma once

#include "tanren/base/state.h"
#include "tanren/base/verdict.h"
#include "tanren/config/run_config.h"

#include <optional>
#include <string>

namespace tanren {

// Running mean and variance of one value.
class RunningLevel {
 public:
  // Deviations above the mean; 0 while fewer than `window` values are known.
  double z(double value, int64_t window) const;
  // Adds the value, cut to `cut` deviations above the mean once a window is known.
  void add(double value, int64_t window, double cut);
  double mean() const { return mean_; }

  void save(State& state, const std::string& name) const;
  void load(const State& state, const std::string& name);

 private:
  double deviation() const;

  double mean_ = 0, variance_ = 0;
  int64_t count_ = 0;
};

class SpikeDetector {
 public:
  explicit SpikeDetector(const GuardOptions& options)
      : threshold_(options.spike_z), window_(options.spike_window) {}

  // Looks at one applied update. Returns the loss or the gradient norm, whichever lies further out,
  // if it lies beyond the threshold. Both must be finite.
  std::optional<Spike> look(double loss, double grad_norm);

  void save(State& state) const;
  void load(const State& state);

 private:
  double threshold_;  // 0: off
  int64_t window_;
  RunningLevel loss_, grad_norm_;
};

}  // namespace tanren
