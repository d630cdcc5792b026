// Guard: judges one update before the optimizer sees it. Overflow, non-finite loss and non-finite
// gradient are three causes: the first is fp16's normal event and never counts against the run.
// Its verdict is a value; train_loop turns `halt` into the end of the run.
#pragma once

#include "tanren/base/state.h"
#include "tanren/base/verdict.h"
#include "tanren/plan/plan.h"

namespace tanren {

struct Evidence {
  bool loss_finite = true;
  bool gradients_finite = true;
  bool can_back_off = false;  // dynamic loss scale above its floor
};

class Guard {
 public:
  explicit Guard(const GuardOptions& options);

  Verdict judge(const Evidence& evidence);
  // Skips in a row, up to now, whose cause was no overflow.
  int64_t skips_in_a_row() const { return skips_in_a_row_; }

  State state() const;
  void load(const State& state);

 private:
  Action answer(bool stop);

  bool stop_on_loss_;
  bool stop_on_gradient_;
  int64_t max_skips_;
  int64_t skips_in_a_row_ = 0;
};

}  // namespace tanren
