// Optimizer state between torch.optim and a run, both ways: training checkpoints of PyTorch
// ({"model", "optimizer", …}) are gone on from, and a run's checkpoint is written as one. For the
// optimizers whose state both share: adamw, adam, sgd. Called by run and `tanren convert`.
#pragma once

#include "tanren/config/known_kinds.h"
#include "tanren/config/run_config.h"
#include "tanren/train/run_state.h"

#include <torch/nn/module.h>

#include <filesystem>
#include <string>

namespace tanren {

struct OptimizerStart {
  State state;       // "<parameter>.exp_avg", …, as Optimizer::state() names them
  std::string text;  // "state of 12 of 12 parameters from net.pt, 10 updates; lr 0.1 there, …"
};

// The state of optimizer.init_from for the module's parameters. Torch's numbers are names where the
// file has param_names; else the parameters in the order of the file's model (or the module's),
// group by group where there are several: those with the group's weight decay. CheckpointError where
// numbers, shapes or the optimizer's kind do not fit; other options that differ are told.
OptimizerStart read_optimizer_start(const torch::nn::Module& module, const RunConfig& config);

// Puts it into the optimizers of the run; what is not trained now stays out.
void start_optimizer(RunState& run, const OptimizerStart& start);

// Writes a step folder as {"model", "optimizer", "step", "epoch"}, which torch.load opens with
// weights_only=True: optimizer.load_state_dict takes it for an optimizer over model.parameters(), in
// as many groups as there are rates and weight decays. ConfigError for another optimizer or several
// objectives.
void write_torch_checkpoint(const std::filesystem::path& checkpoint,
                            const std::filesystem::path& file, const KnownKinds& known);

}  // namespace tanren
