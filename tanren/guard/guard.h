// Guard: judges one update before the optimizer sees it. Overflow, non-finite loss and non-finite
// gradient are three causes. Overflow is normal in fp16 and never counts against the run; neither
// does a batch that counts nothing. An update with a spike of loss or gradient norm is reported and
// applied. Its verdict is a value; train_loop turns `halt` into the end of the run.
#pragma once

#include "tanren/base/state.h"
#include "tanren/base/verdict.h"
#include "tanren/guard/spike_detector.h"
#include "tanren/plan/plan.h"

#include <optional>

namespace tanren {

struct Evidence {
  bool counted = true;  // no count that divides a term is 0
  bool loss_finite = true;
  bool gradients_finite = true;
  bool can_back_off = false;  // dynamic loss scale above its floor
  // The update's loss and gradient norm, if known; the spike detector looks at them if both are.
  std::optional<double> loss, grad_norm;
};

class Guard {
 public:
  explicit Guard(const GuardOptions& options);

  Verdict judge(const Evidence& evidence);
  // Skips in a row so far, without those for an overflow or a batch that counts nothing; a halt
  // resets it.
  int64_t skips_in_a_row() const { return skips_in_a_row_; }

  // The spike in the update judged last, if any; its verdict then has the cause `spike`.
  const std::optional<Spike>& spike() const { return spike_; }

  State state() const;
  void load(const State& state);

 private:
  // The verdict on an update that must not be applied. `stop`: halt at once, whatever max_skips is.
  Verdict refuse(bool stop, Cause cause);

  bool stop_on_loss_;
  bool stop_on_gradient_;
  int64_t max_skips_;
  int64_t skips_in_a_row_ = 0;
  SpikeDetector spikes_;
  std::optional<Spike> spike_;
};

}  // namespace tanren
