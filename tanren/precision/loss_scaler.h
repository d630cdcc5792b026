// LossScaler: the factor that lifts fp16 gradients out of the range that fp16 flushes to zero.
// Invariant: the scale is constant within a window; update() is called once per judged update and
// reacts to overflow only (a non-finite loss says nothing about the scale). After
// Micikevicius et al. 2018 (arXiv 1710.03740), with PyTorch's defaults.
#pragma once

#include "tanren/base/state.h"
#include "tanren/base/verdict.h"
#include "tanren/plan/plan.h"

#include <ATen/core/Tensor.h>

#include <string>

namespace tanren {

// A scale and the updates without overflow since it last changed.
struct LossScale {
  double scale = 1;
  int64_t quiet_steps = 0;
};

class LossScaler {
 public:
  explicit LossScaler(const PrecisionPlan& plan);

  // The current factor; 1 if there is no scaling.
  double scale() const { return scale_; }
  // `loss` times the factor, for custom loops (train_step puts the factor into the backward's
  // seed).
  at::Tensor scaled(const at::Tensor& loss) const;
  // True while the scale can still be reduced after an overflow.
  bool can_back_off() const;
  // Overflow: the scale backs off, never below the floor. None or
  // spike: after growth_interval quiet updates it grows, up to the ceiling. Other causes: nothing.
  void update(Cause cause);

  // True until a first scale has been found (precision.initial_scale = "auto").
  bool wants_search() const { return wants_search_; }
  void set_searched(double scale);
  // Continues from a scale that another program found. A scaler that is not dynamic ignores it.
  void start_from(const LossScale& found);

  State state() const;
  // Does not load a scale that was found under another kind of scaling or from another first scale.
  // The scale then starts from its first value.
  void load(const State& state);

 private:
  std::string kind() const;
  double within_bounds(double scale) const;

  Scaling scaling_;
  double first_scale_;  // 0: to be searched for
  double growth_factor_;
  double backoff_factor_;
  int64_t growth_interval_;
  double min_scale_;
  double max_scale_;
  double scale_;
  int64_t quiet_steps_ = 0;
  bool wants_search_;
};

}  // namespace tanren
