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
  ObjectiveSpec spec;  // the task's, with the plan's turns, and its weights on the listed terms
  ObjectivePlan plan;  // the optimizer's patterns, groups and layers are those of its parameters
  std::vector<NamedParameter> parameters;  // that are trained now
  // Trained and frozen ones, in the model's order. Rows that ranks share have a place for each.
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
  // What this rank holds; null: the whole model. It trains those of `all` that it holds, which may
  // be none.
  std::shared_ptr<const StagePlan> stage = nullptr;
  // If ranks share the update, the optimizer updates slices of the parameters, one for each of
  // gradients.slices().
  std::unique_ptr<ShardedParameters> shards = nullptr;  // null: each rank updates all
  std::vector<NamedParameter> updated = {};             // by the optimizer: parameters, or slices
  std::vector<size_t> places = {};                      // in `all`, of each of `parameters`
  // For each of `all`, the gradient that this rank measures, in gradients.owned(): its slice if
  // ranks share the state. Ranks that hold the same gradient speak for it once: on all but the
  // first, of the stage that owns the parameter, the range is empty, as it is for a parameter that
  // is frozen.
  std::vector<FlatRange> spoken_for = {};
  bool in_turn = true;          // takes part in the present update
  bool master_weights = false;  // 16-bit parameters have fp32 gradients and fp32 copies

  // Takes the parameters that require a gradient now and that this rank holds, and makes gradients
  // and an optimizer for them, unless it only evaluates. Parameters that had optimizer state keep
  // it. ConfigError if no stage has any to train. Ranks that share the state call it together and
  // pass `ranks`; without it their state starts again.
  void choose_parameters(Communicator* ranks = nullptr);
  // The factor on a term of its phase's forward in its loss; 0 for a term that is not in it.
  double weight_of(const std::string& term) const;
  // One flag for each of `updated`; null: all. `kept` holds the flags if they have to be made.
  const std::vector<uint8_t>* active(std::vector<uint8_t>& kept) const;
};

}  // namespace tanren
