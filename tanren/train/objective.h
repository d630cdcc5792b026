// Objective: one loss with the parameters it may change, and all that belongs to their update. Part
// of RunState. Not thread-safe.
#pragma once

#include "tanren/base/task.h"
#include "tanren/guard/guard.h"
#include "tanren/ops/sums_of_squares.h"
#include "tanren/optimizer/average.h"
#include "tanren/optimizer/optimizer.h"
#include "tanren/optimizer/plateau.h"
#include "tanren/parallel/gradients.h"
#include "tanren/parallel/sharded_parameters.h"
#include "tanren/plan/plan.h"
#include "tanren/precision/loss_scaler.h"
#include "tanren/train/stage_plan.h"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace tanren {

// A buffer of the modules that hold an objective's parameters.
struct ObjectiveBuffer {
  at::Tensor tensor;
  // The layer that has the buffer as a running statistic (running_mean or running_var); null:
  // another buffer.
  std::shared_ptr<const torch::nn::Module> norm = nullptr;

  // A forward in training mode mixes the statistics of its samples into the buffer.
  bool is_measured() const { return norm != nullptr && norm->is_training(); }
};

struct Objective {
  ObjectiveSpec spec;  // the task's, with the plan's `every` and weights of terms
  ObjectivePlan plan;  // its optimizer options refer to these parameters only
  std::vector<NamedParameter> parameters;  // that are trained now
  // Trained and frozen parameters, in the model's order. Rows that ranks sum have a place for each.
  std::vector<NamedParameter> all;
  std::vector<ObjectiveBuffer> buffers;  // that belong to its parameters' modules
  bool trains = true;                    // false: no gradients, optimizer and average
  Gradients gradients;
  std::unique_ptr<Optimizer> optimizer;  // null if it does not train
  LossScaler scaler;
  Guard guard;
  Plateau plateau;   // of the schedule: what evaluations did to its rate
  int64_t step = 0;  // applied updates: drives its schedule
  std::unique_ptr<WeightAverage> average = nullptr;  // null: none
  Sharding sharding = {};
  // The part of the model that this rank holds; null: the whole model. The rank trains those of
  // `all` that it holds, which may be none.
  std::shared_ptr<const StagePlan> stage = nullptr;
  // If ranks share the update, the optimizer updates slices of the parameters, one for each of
  // gradients.slices().
  std::unique_ptr<ShardedParameters> shards = nullptr;  // null: each rank updates all
  std::vector<NamedParameter> updated = {};             // by the optimizer: parameters, or slices
  std::vector<size_t> places = {};                      // in `all`, of each of `parameters`
  // For each of `all`, the range of gradients.owned() that this rank measures. It is empty for a
  // frozen parameter and on stages that do not own the parameter. If ranks share the state, it is
  // the rank's slice. Otherwise it is empty on all replicas but the first.
  std::vector<FlatRange> spoken_for = {};
  bool in_turn = true;          // takes part in the present update
  bool master_weights = false;  // 16-bit parameters have fp32 gradients and fp32 copies

  // Takes the parameters that require a gradient now and that this rank holds. If `trains`, makes
  // gradients and an optimizer for them; parameters that had optimizer state keep it. Throws
  // ConfigError if no stage has a parameter to train. Ranks that share the state must call it
  // together and pass `ranks`; without `ranks` their optimizer state starts again.
  void choose_parameters(Communicator* ranks = nullptr);
  // The weight of a term of the phase's forward in this objective's loss; 0 if it has none.
  double weight_of(const std::string& term) const;
  // One flag for each of `updated`; null: all are active. `kept` stores the flags if they must be
  // computed.
  const std::vector<uint8_t>* active(std::vector<uint8_t>& kept) const;
};

}  // namespace tanren
