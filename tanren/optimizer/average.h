// WeightAverage: a second copy of the trained weights, averaged over applied steps: exponentially
// (EMA) or evenly (SWA: Izmailov et al., arXiv 1803.05407). Invariant: the trained weights are
// never written; before the first update there is no average. Allocated at build; not thread-safe.
// Called by train_step once per applied update, by evaluation, and by user-written loops.
#pragma once

#include "tanren/optimizer/optimizer.h"
#include "tanren/plan/plan.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

class WeightAverage {
 public:
  // Parameters and buffers must be fp32 or fp64; the average has their dtype, device and strides.
  // Buffers that are not floating are not averaged (they stay the module's). Error for a 16-bit
  // tensor, whose average would never change.
  WeightAverage(const AveragePlan& plan, const std::vector<NamedParameter>& parameters,
                const std::vector<NamedParameter>& buffers = {});

  // Adds the weights after `step` applied updates to the average if the plan asks for it (start,
  // every); the first time it copies them. As torch.optim.swa_utils.AveragedModel with
  // get_ema_multi_avg_fn or get_swa_multi_avg_fn: a few foreach calls for any number of tensors.
  // `every`: global batches per update of the objective. The plan's start and every count global
  // batches.
  void update(int64_t step, int64_t every = 1);
  // Updates so far; 0: there is no average yet, and the raw weights are used in its place.
  int64_t num_updates() const { return num_updates_; }

  // Swaps the storages of the tensors with the averages: no element is copied, and a second call
  // restores everything bitwise. Does nothing while there is no average.
  void exchange();

  // `<name>` of each averaged tensor, and "num_updates". The tensors are the average's, not copies.
  // Error while exchanged, as update.
  State state() const;
  // CheckpointError if a name, shape or dtype differs from state().
  void load(const State& state);

 private:
  double decay_now() const;
  void refuse_if_exchanged(const char* what) const;

  AveragePlan plan_;
  std::vector<std::string> names_;  // parameters, then buffers
  size_t num_parameters_ = 0;
  std::vector<at::Tensor> current_;   // the module's own
  std::vector<at::Tensor> averages_;  // the same order
  int64_t num_updates_ = 0;
  bool exchanged_ = false;
};

// Exchanges on construction and back on destruction, also during an exception.
class AverageScope {
 public:
  explicit AverageScope(std::vector<WeightAverage*> averages);
  ~AverageScope();
  AverageScope(const AverageScope&) = delete;
  AverageScope& operator=(const AverageScope&) = delete;
  // Whether the module now has averaged weights.
  bool active() const { return !exchanged_.empty(); }

 private:
  std::vector<WeightAverage*> exchanged_;
};

// The learning rate of the update after `step` applied updates: the plan's constant rate, if it has
// one and averaging has begun, else `scheduled`.
double averaging_rate(const AveragePlan& plan, int64_t step, double scheduled);

}  // namespace tanren
