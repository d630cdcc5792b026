// What a window's gradients and losses are worth, measured on the device and read by the host at once.
// On several ranks all learn the same from one all-reduce of one row: sums of the terms, the norm of
// rank 0 (whose rounding all then share), which gradients some rank has reached, who was asked to stop,
// how many samples each had. Invariant: the one device read of a step. Called by train_step after the reducer.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/report.h"
#include "tanren/train/loss_meter.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace tanren {

// Of one objective.
struct Status {
  double loss = 0;
  NamedValues terms;
  double norm = 0;             // non-finite: a gradient is, or its sum of squares just overflowed
  int64_t bad_microstep = -1;  // first of this rank with a non-finite term
  // Names of a term and of the count that divides it, which is 0 in this batch; empty: none is.
  std::string uncounted_term, uncounted;
  std::optional<double> flush_share, overflow_share;
};

struct WindowStatus {
  std::vector<Status> objectives;
  bool stop_requested = false;  // on some of several ranks
  std::vector<double> samples;  // of each of several ranks
};

// Unscales the gradients in place, and makes active() of each what it is on all ranks.
WindowStatus measure_window(Phase& phase, const torch::nn::Module& module, const Parts& parts,
                            const GlobalBatch& batch, const LossMeter& losses);

// The 2-norm of the objective's gradients in double; on several ranks that of rank 0. Copies nothing: it
// comes with every overflow, which must fit where any update fits.
double agreed_exact_norm(const Objective& objective, const Parts& parts);

}  // namespace tanren
