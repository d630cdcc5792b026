// The state_dict of a torch.optim optimizer, as training checkpoints of PyTorch hold it beside the
// model: parameter groups, and the state of each parameter by its number. Torch knows no names here
// (but param_names, where the optimizer was made of named parameters). Called by run's torch_state.
#pragma once

#include "tanren/checkpoint/weights_file.h"
#include "tanren/formats/pt_value.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct TorchOptimizer {
  struct Group {
    std::vector<int64_t> parameters;       // their numbers
    std::vector<std::string> names;        // param_names; empty: the file has none
    std::map<std::string, Value> options;  // "lr", "betas.0", "weight_decay", …
  };
  std::vector<Group> groups;
  std::map<int64_t, State> state;  // "exp_avg", "step", …, of the parameters that have some
};

// The first optimizer of a file: under "optimizer", "optimizer_state_dict", "optimizer_states.0", … or
// the file itself. Nothing where it has none. CheckpointError naming `path` where its groups and
// numbers do not fit together.
std::optional<TorchOptimizer> torch_optimizer_of(const WeightsFile& file, const std::string& path);

// As torch.optim.Optimizer.load_state_dict takes it. A group's options "betas.0" and "betas.1" become
// a tuple.
PtValue to_pt(const TorchOptimizer& optimizer);

}  // namespace tanren
