// explained(): runs work on batches. If a device or its libraries fail, it throws an error that
// explains the failure: it names the number in the data that is out of bounds, or says what the
// failure means. Invariant: after a failure nothing is read from the device, whose context may be
// dead. Called for each update and each evaluation.
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
  int64_t classes = 0;     // scored by the model; 0: unknown
  int64_t microbatch = 0;  // samples at once; 0: unknown
  // Gives the host's copies of the batches that may be at fault, one per call; false if there are
  // no more. Only called after a failure.
  std::function<bool(Batch&)> next_batch;
};

// Throws what `run` throws, except for a fault (memory/fault.h). A fault becomes a DataError that
// names field, sample, value and bound if one of the batches holds a number out of bounds.
// Otherwise it becomes a RunError, and `state` is updated from `gauge`.
void explained(const Work& work, const MemoryGauge& gauge, MemoryState& state,
               const std::function<void()>& run);

// update(), run through explained(); the batch was collated from `dataset`.
std::optional<StepReport> explained_update(RunState& run, const Parts& parts,
                                           const GlobalBatch& batch, const Dataset& dataset,
                                           MemoryState& state);

}  // namespace tanren
