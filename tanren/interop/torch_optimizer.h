// The state_dict of a torch.optim optimizer, as PyTorch's training checkpoints hold it next to the
// model: parameter groups, and each parameter's state under its number. Torch stores names
// (param_names) only if the optimizer was made from named parameters. Called by run's torch_state.
#pragma once

#include "tanren/checkpoint/weights_file.h"
#include "tanren/formats/pt_value.h"

#include <map>
#include <string>
#include <vector>

namespace tanren {

struct TorchOptimizer {
  std::string name;  // in its file: "optimizer"; empty: the file is the optimizer alone
  struct Group {
    std::vector<int64_t> parameters;       // their numbers
    std::vector<std::string> names;        // param_names; empty: the file has none
    std::map<std::string, Value> options;  // "lr", "betas.0", "weight_decay", …
  };
  std::vector<Group> groups;
  std::map<int64_t, State> state;  // "exp_avg", "step", …, of the parameters that have state
};

// The optimizers in a file, by name: "optimizer", "optimizer_state_dict", "optimizer_states.0", …,
// or the file itself. CheckpointError naming `path` if groups and numbers are inconsistent.
std::vector<TorchOptimizer> torch_optimizers_of(const WeightsFile& file, const std::string& path);

// The form that torch.optim.Optimizer.load_state_dict takes. A group's options "betas.0" and
// "betas.1" become a tuple.
PtValue to_pt(const TorchOptimizer& optimizer);

}  // namespace tanren
