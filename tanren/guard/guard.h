// Guard: judges one update before the optimizer sees it. Overflow, non-finite loss and non-finite
// gradient are three causes: the first is fp16's normal event and never counts against the run, as little
// as a batch that counts nothing.
// A spike of loss or gradient norm is told of and applied. Its verdict is a value; train_loop turns `halt` into the end of the run.
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
  // Of the update, where known: what the spike detector looks at, if both are.
  std::optional<double> loss, grad_norm;
};

class Guard {
 public:
  explicit Guard(const GuardOptions& options);

  Verdict judge(const Evidence& evidence);
  // Skips in a row, up to now, whose cause was no overflow; a halt ends the row.
  int64_t skips_in_a_row() const { return skips_in_a_row_; }

  // What stood out of the update judged last; its verdict has the cause `spike` then.
  const std::optional<Spike>& spike() const { return spike_; }

  State state() const;
  void load(const State& state);

 private:
  // Of an update that may not be applied; `stop`: its cause alone ends the run.
  Verdict refuse(bool stop, Cause cause);

  bool stop_on_loss_;
  bool stop_on_gradient_;
  int64_t max_skips_;
  int64_t skips_in_a_row_ = 0;
  SpikeDetector spikes_;
  std::optional<Spike> spike_;
};

}  // namespace tanren
