// Converts optimizer state between torch.optim and a run, both ways: a run can continue from a
// PyTorch training checkpoint ({"model", "optimizer", …}), and a run's checkpoint can be written as
// one. For optimizers with the same state in both: adamw, adam, sgd. Called by run and by
// `tanren convert`.
#pragma once

#include "tanren/config/known_kinds.h"
#include "tanren/config/run_config.h"
#include "tanren/train/run_state.h"

#include <torch/nn/module.h>

#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

struct OptimizerStart {
  State state;  // "<parameter>.exp_avg", …, as Optimizer::state() names them
  // apex's amp.state_dict(): of the first objective, the second, …; empty: the file has none.
  std::vector<LossScale> loss_scales = {};
  std::string text;  // "state of 12 of 12 parameters from net.pt, 10 updates; lr 0.1 there, …"
};

// Reads the state of optimizer.init_from for the module's parameters. Torch's numbers are mapped by
// param_names if the file has them; else by the order of parameters in the file's model (or the
// module's). With several groups, each takes the parameters with its weight decay. CheckpointError
// if numbers, shapes or the optimizer's kind do not match; other options that differ are reported
// in `text`. An entry "amp" in the file, which apex.amp.state_dict() makes, gives loss scales.
OptimizerStart read_optimizer_start(const torch::nn::Module& module, const RunConfig& config);

// Loads the state into the run's optimizers; state of parameters that are not trained now is
// dropped. Dynamic loss scales go on from those of the file.
void start_optimizer(RunState& run, const OptimizerStart& start);

// Writes a step folder as {"model", "optimizer", "step", "epoch"}, which torch.load opens with
// weights_only=True. optimizer.load_state_dict takes it for an optimizer over model.parameters()
// with one group for each pair of learning rate and weight decay. ConfigError for another optimizer
// or several objectives.
void write_torch_checkpoint(const std::filesystem::path& checkpoint,
                            const std::filesystem::path& file, const KnownKinds& known);

}  // namespace tanren
