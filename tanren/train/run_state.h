// RunState: everything of a run that is persisted, and nothing else: module (weights, buffers,
// requires_grad and train/eval flags), objectives (optimizer, scaler, guard, step, average),
// counters, data cursor, generator, and what evaluations decided. Behaviour lives in Parts. Not
// thread-safe; owned by the loop's thread.
#pragma once

#include "tanren/base/state.h"
#include "tanren/base/task.h"
#include "tanren/checkpoint/stored_state.h"
#include "tanren/parallel/reducer.h"
#include "tanren/train/objective.h"
#include "tanren/train/selection.h"
#include "tanren/train/stage_wires.h"

#include <memory>
#include <string>
#include <vector>

namespace tanren {

// A term of the phase's forward and the count that divides it.
struct PhaseTerm {
  std::string name, count_name;
};

// The time of a stage's last window.
struct StageTime {
  double seconds = 0;
  double waited = 0;  // of them, for other stages of the replica
};

struct Phase {
  PhaseSpec spec;
  std::vector<Objective> objectives;
  std::vector<PhaseTerm> terms = {};  // as agreed over ranks in the first window; empty on one rank
  // Names of the module's parameters and buffers when the phase was made; empty after the first
  // update's check.
  std::vector<std::string> tensors = {};
  // Sums the objectives' gradients over ranks. Made by the first update of several ranks, and again
  // after the trained parameters changed. Null on one rank.
  std::unique_ptr<Reducer> reducer = nullptr;
  bool blocks_checked = false;    // check_blocks saw the blocks of its first forward
  KnownShapes stage_shapes = {};  // of what its microbatches send between stages
  StageTime stage_time = {};      // of its last window in stages

  // choose_parameters() of every objective.
  void choose_parameters(Communicator* ranks = nullptr);
  // Sets which objectives take part in the update of `attempt`, counted from 0. False if none does.
  bool begin_turn(int64_t attempt);
  // The objectives that take part in the present update.
  std::vector<Objective*> in_turn();
};

// The key in average_state() of an objective whose average was never updated. The value lists the
// names of its tensors, one per line. These tensors hold no average, and the raw weights are used
// instead.
inline constexpr const char* kNoAverage = "no_average";

// The key in the run's state whose value lists the task's input_scales, one per line. The key is
// missing if there are none, and in older step folders.
inline constexpr const char* kInputScales = "input_scales";

struct RunState {
  Task task;
  std::vector<Phase> phases;
  uint64_t seed = 0;
  int64_t attempt = 0;     // global batches consumed, applied or not
  int64_t epoch = 0;       // the data cursor: epoch,
  int64_t consumed = 0;    // and samples of it consumed
  int64_t microbatch = 0;  // samples per microstep
  Selection selection;     // what evaluations decided
  // What this rank holds of the model; null: all of it.
  std::shared_ptr<const StagePlan> stage = nullptr;
  bool applying = false;  // an update is being applied: an error now leaves a mix of two states
  // The phases of the present update that are judged and then applied or undone. After an error it
  // may be above 0: it then counts those of the update that failed.
  size_t phases_done = 0;
  int64_t updated_step = 0;  // number of the present update: step() + 1 at its start

  // After an update the weights of other ranks may still be arriving; this waits for them. Call it
  // before anything but an update reads or writes weights. CommError.
  void settle() const;
  // The objectives' shards whose weights are still arriving.
  std::vector<ShardedParameters*> gathering() const;
  // Applied updates of the first objective.
  int64_t step() const { return phases.front().objectives.front().step; }
  // Whether there is more than one objective.
  bool has_several_objectives() const;
  // The seed of a phase's random draws. Each phase has its own: all forwards of an update see the
  // same samples, and with one seed they would draw the same numbers.
  uint64_t seed_of(const Phase& phase) const;

  // Whether this rank holds the parameter or buffer of this name.
  bool holds(const std::string& name) const { return stage == nullptr || stage->holds(name); }
  // Whether this rank's stage owns it: the first of the stages that hold it.
  bool owns(const std::string& name) const { return stage == nullptr || stage->owns(name); }
  // The weights and buffers that this rank holds, by name.
  TensorMap model_tensors() const;
  State optimizer_state() const;
  // What this rank writes to a checkpoint: a tensor that several stages hold is written by its
  // owner alone. Replicas return the same, except slices of the optimizer's state.
  TensorMap model_to_write() const;
  SlicedState optimizer_to_write() const;
  State average_to_write() const;
  // Counters, flags, scalers, and the generators of the CPU and of `device` (Parts::device).
  State run_state(at::Device device) const;
  // The averages of all objectives under the weights' names, including all names of a tensor that
  // has several. Empty if there are no averages.
  State average_state() const;
  std::vector<WeightAverage*> averages() const;
  // model_tensors() with the averaged tensors in place of the raw ones, if there are averages.
  TensorMap averaged_tensors() const;
  // Returns `tensors`, and each also under the other names that the module has for the same tensor.
  TensorMap under_all_names(const TensorMap& tensors) const;
  // Loads in place and restores requires_grad, and the generators of the CPU and of `device`.
  // The states may be those of the whole model: this rank takes what it holds, and reads no more.
  // CheckpointError listing names and shapes if the model differs. `average` is needed if the
  // objectives have averages. `slices`: of the optimizer's state, if it is stored in slices.
  void load(at::Device device, const State& model, const State& optimizer, const State& run,
            const State& average = {}, const std::vector<StateSlice>& slices = {});
  // Loads weights and buffers alone. `tensors` may be those of the whole model: this rank takes
  // what it holds.
  void load_model(const TensorMap& tensors, const std::string& what);
};

// Turns a task into phases with objectives: selects parameters by pattern (ConfigError for a
// pattern without match, a parameter of two objectives, or names that a checkpoint could not tell
// apart). If they `train`, allocates gradients, optimizer state and averages. `stage`: what this
// rank holds of the model, of which it trains its part; null: all of it.
std::vector<Phase> make_phases(const Task& task, const Plan& plan, bool train = true,
                               const std::shared_ptr<const StagePlan>& stage = nullptr);

}  // namespace tanren
