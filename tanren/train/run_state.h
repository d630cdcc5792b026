// RunState: everything of a run that is persisted, and nothing else: module (weights, buffers,
// requires_grad and train/eval flags), objectives (optimizer, scaler, guard, step, average), counters,
// data cursor, generator, what evaluations decided. Behaviour lives in Parts. Not thread-safe; owned by the loop's thread.
#pragma once

#include "tanren/base/state.h"
#include "tanren/base/task.h"
#include "tanren/checkpoint/stored_state.h"
#include "tanren/guard/guard.h"
#include "tanren/optimizer/average.h"
#include "tanren/optimizer/optimizer.h"
#include "tanren/optimizer/plateau.h"
#include "tanren/parallel/gradients.h"
#include "tanren/parallel/reducer.h"
#include "tanren/parallel/sharded_parameters.h"
#include "tanren/precision/loss_scaler.h"
#include "tanren/train/selection.h"

#include <memory>
#include <string>
#include <vector>

namespace tanren {

// A buffer of the modules that hold an objective's parameters.
struct ObjectiveBuffer {
  at::Tensor tensor;
  // The layer whose running statistics it is one of (running_mean or running_var); null: another buffer.
  std::shared_ptr<const torch::nn::Module> norm = nullptr;

  // A forward in training mode mixes what it sees of its samples into it.
  bool is_measured() const { return norm != nullptr && norm->is_training(); }
};

// One loss with the parameters it may change, and all that belongs to their update.
struct Objective {
  ObjectiveSpec spec;
  std::vector<NamedParameter> parameters;  // that are trained now
  std::vector<NamedParameter> all;         // and with those that are frozen, in the model's order
  std::vector<ObjectiveBuffer> buffers;    // that belong to its parameters' modules
  Gradients gradients;
  std::unique_ptr<Optimizer> optimizer;
  LossScaler scaler;
  Guard guard;
  Plateau plateau;   // of the schedule: what evaluations did to its rate
  int64_t step = 0;  // applied updates: drives its schedule
  std::unique_ptr<WeightAverage> average = nullptr;  // null: none
  OptimizerOptions optimizer_options = {};
  Sharding sharding = {};
  // Where ranks share the update: what the optimizer updates are slices of the parameters, one for
  // each of gradients.slices().
  std::unique_ptr<ShardedParameters> shards = nullptr;  // null: each rank updates all
  std::vector<NamedParameter> updated = {};             // by the optimizer: parameters, or slices

  // Takes as its parameters those that require a gradient now: gradients and optimizer are made for
  // them, and the optimizer's state stays where they had some. ConfigError where there are none.
  // Ranks that share the state call it together, and name one another; without it starts anew.
  void choose_parameters(Communicator* ranks = nullptr);
  // One flag for each of `updated`; null: all. `kept` is where they are, if they have to be made.
  const std::vector<uint8_t>* active(std::vector<uint8_t>& kept) const;
};

// A term of the phase's forward and the count that divides it.
struct PhaseTerm {
  std::string name, count_name;
};

struct Phase {
  PhaseSpec spec;
  std::vector<Objective> objectives;
  std::vector<PhaseTerm> terms = {};  // as ranks agreed on in the first window; empty on one rank
  // Parameters and buffers of the module when the phase was made; empty once the first update has looked.
  std::vector<std::string> tensors = {};
  // Sums the objectives' gradients over ranks; made by the first update of several ranks, and anew
  // where the trained parameters changed. Null on one rank.
  std::unique_ptr<Reducer> reducer = nullptr;

  // choose_parameters() of every objective.
  void choose_parameters(Communicator* ranks = nullptr);
};

struct RunState {
  Task task;
  std::vector<Phase> phases;
  uint64_t seed = 0;
  int64_t attempt = 0;     // global batches consumed, applied or not
  int64_t epoch = 0;       // the data cursor: epoch,
  int64_t consumed = 0;    // and samples of it consumed
  int64_t microbatch = 0;  // samples per microstep
  Selection selection;     // what evaluations decided
  bool applying = false;   // an update is being applied: an error then leaves half of two states

  // After an update the weights of other ranks may still be arriving: waits for them. Before anything
  // but an update reads or writes weights. CommError.
  void settle() const;
  // Those whose weights still arrive.
  std::vector<ShardedParameters*> gathering() const;
  // Applied updates of the first objective.
  int64_t step() const { return phases.front().objectives.front().step; }

  at::Device device() const;
  // Weights and buffers by name.
  TensorMap model_tensors() const;
  State optimizer_state() const;
  // Of what that state is where ranks share it; else none.
  std::vector<StateSlice> optimizer_slices() const;
  State run_state() const;
  // The averages of all objectives under the weights' names; empty: none.
  State average_state() const;
  std::vector<WeightAverage*> averages() const;
  // The model as one that uses the averages has it: model_tensors() with the averaged ones in their
  // places, where there are any.
  TensorMap averaged_tensors() const;
  // Loads in place; what requires a gradient is as it was when saved. CheckpointError listing names and shapes where the model differs; `average` is
  // needed where the objectives have averages.
  // `slices`: of the optimizer's state, where it is stored so.
  void load(const State& model, const State& optimizer, const State& run, const State& average = {},
            const std::vector<StateSlice>& slices = {});
  // Weights and buffers alone.
  void load_model(const TensorMap& tensors, const std::string& what);
};

// Turns a task into phases with objectives: selects parameters by pattern (ConfigError for a
// pattern without match, a parameter of two objectives, or names that a checkpoint could not tell
// apart), allocates gradients and optimizer state.
std::vector<Phase> make_phases(const Task& task, const Plan& plan);

}  // namespace tanren
