// Measures a window's gradients and losses on the device; the host reads all results at once, in
// one StatusRow. On several ranks all get the same: sums of the terms, the gradient norm (rank 0's,
// whose rounding all then share; joint if gradients are sharded), which gradients some rank has
// reached, whether a rank was asked to stop, and each replica's number of samples. Called by
// train_step and scale_search after the reducer.
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

// The results for one objective.
struct Status {
  double loss = 0;
  NamedValues terms;
  double norm = 0;             // non-finite: a gradient is, or only its sum of squares overflowed
  int64_t bad_microstep = -1;  // first of this rank with a non-finite term of the objective
  // A term and the count that divides it, which is 0 in this batch; empty: no count is 0.
  std::string uncounted_term, uncounted;
  std::optional<double> flush_share, overflow_share;
};

struct WindowStatus {
  std::vector<Status> objectives;  // in turn
  bool stop_requested = false;     // on any rank; false with one rank
  std::vector<double> samples;     // of each replica
};

// Unscales the gradients of the objectives in turn in place, and makes each one's active() what it
// is over all ranks.
WindowStatus measure_window(Phase& phase, const torch::nn::Module& module, const Parts& parts,
                            const GlobalBatch& batch, const LossMeter& losses);

// The 2-norm of the objective's gradients in double; on several ranks rank 0's, or the joint norm
// of shared gradients. Copies nothing: it is called at every overflow and must fit wherever any
// update fits.
double agreed_exact_norm(const Objective& objective, const Parts& parts);

}  // namespace tanren
