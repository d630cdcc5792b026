// Converts optimizer state between torch.optim and a run, both ways: a run can continue from a
// PyTorch training checkpoint ({"model", "optimizer", …}), and a run's checkpoint can be written as
// one. For optimizers with the same state in both: adamw, adam, sgd. Called by run and by
// `tanren convert`.
#pragma once

#include "tanren/config/known_kinds.h"
#include "tanren/config/run_config.h"
#include "tanren/plan/plan.h"
#include "tanren/train/run_state.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct OptimizerStart {
  State state;  // "<parameter>.exp_avg", …, as Optimizer::state() names them
  // One for each objective, in the task's order; no value if apex's amp.state_dict() gives none.
  std::vector<std::optional<LossScale>> loss_scales;
  // "optimizer_state", "state of 12 of 12 parameters from net.pt, 10 updates; lr 0.1 there, …"; a
  // line for each optimizer.
  std::vector<PlanLine> lines;
};

// Whether the run or an objective of it has an optimizer.init_from.
bool starts_from_torch(const RunConfig& config);

// Reads the state of each objective's optimizer.init_from for its parameters. A file with one
// optimizer is for all objectives that name it. If a file has several optimizers, each objective
// takes the one that fits its parameters. Torch's numbers are mapped by param_names if the file has
// them, else by the order of parameters in the file's model (or the module's). With several groups,
// each takes the parameters with its weight decay. CheckpointError if numbers, shapes or the
// optimizer's kind do not match, or if several optimizers fit. `lines` reports other options that
// differ. An entry "amp" in the file, made by apex.amp.state_dict(), gives loss scales. An
// objective takes the one with its own number; the only objective of a file takes the only one.
OptimizerStart read_optimizer_start(const Task& task, const RunConfig& config);

// Loads the state into the run's optimizers; state of parameters that are not trained now is
// dropped. Dynamic loss scales continue from those of the file.
void start_optimizer(RunState& run, const OptimizerStart& start);

// Writes a step folder as {"model", "optimizer", "step", "epoch"}, which torch.load opens with
// weights_only=True. The input scales of a quantisation-aware training are left out of both.
// optimizer.load_state_dict accepts "optimizer" for an optimizer over model.parameters() with one
// group for each pair of learning rate and weight decay. ConfigError if the optimizer is not adamw,
// adam or sgd, or if there are several objectives.
void write_torch_checkpoint(const std::filesystem::path& checkpoint,
                            const std::filesystem::path& file, const KnownKinds& known);

}  // namespace tanren
