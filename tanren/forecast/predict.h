// Predicts the memory that a plan's step will hold, by a dry run of the step itself
// (dry/dry_scope.h); for a model that cannot be dry-run, by two real steps of few samples. Called
// by fit_memory, and by users who want a prediction before their own run.
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

// One block's contribution to the peak.
struct BlockUse {
  std::string name;
  int64_t held_bytes = 0;  // made in its forward and alive at the peak
  // Of its forwards in the dry run's step, which has at most two microsteps. The second pass of a
  // recomputed block counts only for the blocks inside it.
  int64_t multiply_adds = 0;
};

struct MemoryPrediction {
  int64_t peak_bytes = 0;    // largest sum of bytes that tensors hold, as the allocator counts
  int64_t before_bytes = 0;  // held before the first step
  std::array<int64_t, kNumMemoryKinds> at_peak = {};  // by MemoryKind; they sum to peak_bytes
  std::vector<BlockUse> blocks;                       // with something held, the largest first
  int64_t multiply_adds = 0;  // of all forwards of the dry run's step, second passes included
  OperatorSizes largest;      // operators of a microstep; measured by dry runs only
  std::string how;            // "a dry run", "two steps of 1 and 2 samples"
};

class StepPredictor {
 public:
  // `make_task` builds a new task in each call. `dataset`, and whatever `make_task` refers to, must
  // outlive the predictor.
  StepPredictor(std::function<Task()> make_task, const Dataset& dataset)
      : make_task_(std::move(make_task)), dataset_(dataset) {}

  // Predicts one training step of `given` by a dry run, on samples as in the dataset; if `length`
  // is above 0, on samples of `length` tokens. Error if the model needs values, which a dry run
  // does not have.
  MemoryPrediction step(const Plan& given, int64_t length = 0) const;
  // The same from real steps: each allocation is extrapolated linearly from its sizes at 1 and 2
  // samples.
  MemoryPrediction probed_step(const Plan& given) const;
  // The peak of evaluating one batch of `samples`, weights and buffers included, by a dry run. In a
  // run that `trains`, gradients, optimizer state, averages and a copy of the buffers stand beside
  // it. Error as step().
  int64_t evaluation_peak(const Plan& plan, int64_t samples, bool trains = true) const;

  // Tokens per sample: dim 1 of the first integer field that has one; 0: no sequences.
  int64_t length() const;
  // Tokens per sample in a batch of the data's first samples, which collating may pad to the
  // longest of them.
  int64_t longest() const;

 private:
  std::function<Task()> make_task_;
  const Dataset& dataset_;
};

}  // namespace tanren
