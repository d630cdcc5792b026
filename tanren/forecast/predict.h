// Predicts the memory that a plan's step will hold, by a dry run of the step itself
// (dry/dry_scope.h); for a model that cannot run dry, by two real steps of few samples. Called by
// fit_memory, and by users who want a prediction before their own run.
#pragma once

#include "tanren/base/memory_tag.h"
#include "tanren/base/operator_sizes.h"
#include "tanren/base/task.h"
#include "tanren/data/dataset.h"
#include "tanren/dry/memory_trace.h"
#include "tanren/plan/plan.h"

#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

// One block's contribution to the peak.
struct BlockUse {
  std::string name;
  int64_t held_bytes = 0;  // made in its forward and alive at the peak
  // Multiply-adds of its forwards in the dry run's step, which has at most two microsteps. The
  // second pass of a recomputed block counts only for the blocks inside it.
  int64_t multiply_adds = 0;
};

struct MemoryPrediction {
  int64_t peak_bytes = 0;    // largest sum of bytes that tensors hold, as the allocator counts
  int64_t before_bytes = 0;  // held before the first step
  std::array<int64_t, kNumMemoryKinds> at_peak = {};  // by MemoryKind; they sum to peak_bytes
  std::vector<BlockUse> blocks;                       // with something held, the largest first
  bool is_dry = true;         // made by a dry run; only then the two below are known
  int64_t multiply_adds = 0;  // of all forwards of the dry run's step, second passes included
  OperatorSizes largest;      // operators of a microstep
  int64_t least_samples = 1;  // of a microbatch, as found by real steps
  std::string how;            // "a dry run", "two steps of 1 and 2 samples"
};

// The numbers of samples that a model takes at once.
struct SampleCounts {
  int64_t least = 1;  // itself a multiple
  int64_t most = std::numeric_limits<int64_t>::max();
  int64_t multiple = 1;
  bool has(int64_t samples) const {
    return samples >= least && samples <= most && samples % multiple == 0;
  }
};

// "at least 3", "4 to 64 in multiples of 4"
std::string to_text(const SampleCounts& counts);

// Traces of two real steps. The first has the fewest samples per microbatch that the task takes;
// the second has twice as many, or the most that the task takes. If one sample fails or leaves a
// NaN in a buffer, as with torch's batch norm of rows, the steps have 2 and 4 samples. Each
// tensor's size is linear in the number of samples, so the two steps predict a step of any
// microbatch.
struct ProbedStep {
  MemoryTrace one, two;
  size_t before = 0;                                // events before the step
  int64_t num_samples = 1, num_samples_of_two = 2;  // per microbatch; equal: only one size
};

// Real steps already made. One step serves all microbatches. The key has everything else that the
// step depends on.
using ProbedSteps = std::map<std::string, ProbedStep>;

// For models that cannot run dry.
struct ProbeOptions {
  bool runs_dry = true;   // TaskFacts::runs_dry: without it the task is not even made in a dry run
  bool may_probe = true;  // false: a model that cannot run dry is an error
  // Keeps the real steps for predictors of the same dataset. `config` identifies everything that
  // they depend on besides the microbatch. Null: each prediction makes them again.
  std::shared_ptr<ProbedSteps> kept = nullptr;
  std::string config = {};
  // Numbers of samples that the model takes. TaskFacts may raise the least.
  SampleCounts counts = {};
};

class StepPredictor {
 public:
  // `make_task` builds a new task in each call. `dataset`, and whatever `make_task` refers to, must
  // outlive the predictor.
  StepPredictor(std::function<Task()> make_task, const Dataset& dataset, ProbeOptions probes = {})
      : make_task_(std::move(make_task)), dataset_(dataset), probes_(std::move(probes)) {}

  // Predicts one training step of `given` on samples like those of the dataset; if `length` is
  // above 0, on samples of `length` tokens. It makes a dry run. For a model that cannot run dry, it
  // makes real steps with microbatches of 1 and 2 samples (ProbedStep), or of
  // TaskFacts::least_samples and twice as many, within ProbeOptions::counts; such a model has only
  // one length. Real steps train tasks of their own, restore the random generators, and hold no
  // more on the CPU than the plan's limit. Error if `make_task` keeps the module that it makes, or
  // the memory of one of its tensors, because real steps would train it. Error also if a real step
  // fails or the model does not take the microbatch. NeedsValues if real steps are needed but not
  // allowed.
  MemoryPrediction step(const Plan& given, int64_t length = 0) const;
  // The peak of evaluating one batch of `samples`, weights and buffers included, by a dry run. In a
  // run that `trains`, gradients, optimizer state, averages and a copy of the buffers stand beside
  // it. NeedsValues if the model cannot run dry.
  int64_t evaluation_peak(const Plan& plan, int64_t samples, bool trains = true) const;

  // Tokens per sample: dim 1 of the first integer field that has one; 0: no sequences.
  int64_t length() const;
  // Tokens per sample in a batch of the data's first samples, which collating may pad to the
  // longest of them.
  int64_t longest() const;

 private:
  // A task for a dry run. NeedsValues if ProbeOptions or the task's facts say that it cannot run
  // dry.
  Task make_dry_task() const;
  MemoryPrediction dry_step(const Plan& given, int64_t length) const;
  MemoryPrediction probed_step(const Plan& given) const;
  // The real steps of the plan. They do not depend on its microbatch.
  ProbedStep probe(const Plan& given, int64_t microsteps) const;

  std::function<Task()> make_task_;
  const Dataset& dataset_;
  ProbeOptions probes_;
};

}  // namespace tanren
