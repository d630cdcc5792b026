// What a plan's step will hold in memory, found before it by a dry run of the step itself
// (dry/dry_scope.h); for a model that cannot be run dry, by two real steps of few samples.
// Called by fit_memory, and by whoever wants to know before a run of his own.
#pragma once

#include "tanren/base/memory_tag.h"
#include "tanren/base/operator_sizes.h"
#include "tanren/base/task.h"
#include "tanren/data/dataset.h"
#include "tanren/plan/plan.h"

#include <array>
#include <functional>
#include <string>
#include <vector>

namespace tanren {

// What one block has to do with the peak.
struct BlockUse {
  std::string name;
  int64_t held_bytes = 0;     // made in its forward and alive at the peak
  int64_t multiply_adds = 0;  // of its forwards in one step, second ones aside
};

struct MemoryPrediction {
  int64_t peak_bytes = 0;    // largest sum of what tensors hold, as the allocator counts it
  int64_t before_bytes = 0;  // what is held before the first step
  std::array<int64_t, kNumMemoryKinds> at_peak = {};  // by MemoryKind; they sum to peak_bytes
  std::vector<BlockUse> blocks;                       // with something held, the largest first
  int64_t multiply_adds = 0;  // of all forwards of the step, second ones too
  OperatorSizes largest;      // operators of a microstep; a dry run alone measures them
  std::string how;            // "a dry run", "two steps of 1 and 2 samples"
};

class StepPredictor {
 public:
  // Both must outlive it. `make_task` builds the task anew each time.
  StepPredictor(std::function<Task()> make_task, const Dataset& dataset)
      : make_task_(std::move(make_task)), dataset_(dataset) {}

  // One training step of `given`, dry, on samples as the dataset has them; of `length` tokens where
  // that is above 0. Error where the model needs values, which a dry run has not.
  MemoryPrediction step(const Plan& given, int64_t length = 0) const;
  // The same from real steps: each allocation is a line through its sizes at 1 and 2 samples.
  MemoryPrediction probed_step(const Plan& given) const;
  // The peak of evaluating one batch of `samples`, weights included; dry. Error as step().
  int64_t evaluation_peak(const Plan& plan, int64_t samples) const;

  // Tokens per sample: dim 1 of the first field of whole numbers that has one; 0: no sequences.
  int64_t length() const;
  // The same of the first samples of the data in one batch, which may be filled up to the longest.
  int64_t longest() const;

 private:
  std::function<Task()> make_task_;
  const Dataset& dataset_;
};

}  // namespace tanren
