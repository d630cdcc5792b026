// explained(): runs work on batches, and says in our words what a device or its libraries said in
// theirs when it failed: the number in the data that no table has, or what to make of it.
// Invariant: after a failure nothing is read from the device, whose context may be dead.
// Called by the loops around an update and around an evaluation.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/data/dataset.h"
#include "tanren/memory/fault.h"
#include "tanren/train/train_step.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tanren {

struct Work {
  std::string name;        // "step 12", "evaluation"
  const Dataset& dataset;  // whose samples it works on
  int64_t classes = 0;     // that the model scores; 0: unknown
  int64_t microbatch = 0;  // samples at once; 0: unknown
  // The host's copies of the batches that may be at fault, one after another until it returns false.
  // Only called after a failure.
  std::function<bool(Batch&)> next_batch;
};

// Throws what `run` throws, but for a fault: DataError naming field, sample, value and bound if one
// of the batches holds such a number, else RunError with `state` brought up to date from `gauge`.
void explained(const Work& work, const MemoryGauge& gauge, MemoryState& state,
               const std::function<void()>& run);

// update() of the first phase, explained; `dataset` is what the batch was collated from.
std::optional<StepReport> explained_update(RunState& run, const Parts& parts,
                                           const GlobalBatch& batch, const Dataset& dataset,
                                           MemoryState& state);

}  // namespace tanren
