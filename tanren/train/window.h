// Measures a window's gradients and losses on the device; the host reads all results at once, in
// one StatusRow. All ranks get the same results: the sums of the terms; for each of an objective's
// parameters the sum of its gradient's squares and whether some rank has a gradient; whether a rank
// was asked to stop; and each replica's number of samples. The norm adds the sums of squares in the
// model's order, so that on the CPU no layout of whole parameters changes its bits. Called by
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
  double norm = 0;             // non-finite: a gradient is, or an fp64 square does not fit
  int64_t bad_microstep = -1;  // first of this rank with a non-finite term of the objective
  // A term and the count that divides it, which is 0 in this batch; empty: no count is 0.
  std::string uncounted_term, uncounted;
  std::optional<double> flush_share, overflow_share;
};

struct WindowStatus {
  std::vector<Status> objectives;  // in turn
  bool stop_requested = false;     // on any rank; false with one rank
  std::vector<double> samples;     // of each replica
  std::optional<double> bubble;    // share of time that stages waited; only on the CPU
};

// Unscales, in place, the gradients of the objectives whose turn it is. Sets the active() flags of
// each to those over all ranks.
WindowStatus measure_window(Phase& phase, const torch::nn::Module& module, const Parts& parts,
                            const GlobalBatch& batch, const LossMeter& losses);

// The share of time that stages did not work. Each rank with a window (above 0 seconds) counts with
// the time of the longest window. `busy`: the seconds that all ranks worked, summed.
double waiting_share(const std::vector<double>& windows, double busy);

}  // namespace tanren
