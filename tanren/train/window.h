// Measures a window's gradients and losses on the device; the host reads all results at once, in
// one StatusRow. On several ranks all get the same: sums of the terms, for each of an objective's
// parameters the sum of its gradient's squares and whether some rank has reached it, whether a rank
// was asked to stop, and each replica's number of samples. The norm adds the sums of squares in the
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
  std::optional<double> bubble;    // share of the stages' time that waited; no value: no stages
};

// Unscales the gradients of the objectives in turn in place, and makes each one's active() what it
// is over all ranks.
WindowStatus measure_window(Phase& phase, const torch::nn::Module& module, const Parts& parts,
                            const GlobalBatch& batch, const LossMeter& losses);

// The share of their time that stages did not work: of the longest window of a rank, on each rank
// that has one (above 0). `busy`: the seconds that all of them worked.
double waiting_share(const std::vector<double>& windows, double busy);

}  // namespace tanren
