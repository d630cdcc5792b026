// StagedForward: forwards without gradients through the stages of a replica, batch by batch; the
// last stage has the results. Each stage begins its next batch while later stages have the one
// before. Invariant: all stages of a replica call it with the same batches in the same order, in
// eval mode. Called by evaluations.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"
#include "tanren/train/stage_wires.h"

#include <cstdint>
#include <functional>

namespace tanren {

class StagedForward {
 public:
  // Both outlive it. The run is in stages.
  StagedForward(const RunState& run, const Parts& parts);

  bool is_last() const { return plan_.is_last(); }
  // Calls `forward`, which computes with `batch`, for the blocks of this stage only. `forward` runs
  // to its end, with results, only on the last stage.
  void run(const Batch& batch, const std::function<void()>& forward);
  // After the last batch: waits until the next stage has it. CommError.
  void finish() { wires_.finish(); }

 private:
  const StagePlan& plan_;
  KnownShapes known_;
  StageWires wires_;
  int64_t batch_ = 0;
};

}  // namespace tanren
