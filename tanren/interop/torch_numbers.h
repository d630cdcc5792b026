// Finds the parameter for each number of a torch optimizer. torch.optim numbers its parameters
// group by group, in the order of its arguments. It names them only if it was given
// named_parameters(). Called by torch_state.cpp.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/interop/torch_optimizer.h"
#include "tanren/optimizer/optimizer.h"

#include <map>
#include <string>
#include <vector>

namespace tanren {

// CheckpointError about optimizer.init_from.
[[noreturn]] void fail_start(const std::string& path, const std::string& what,
                             const std::string& advice);

// A number or truth value of a group's options; `otherwise` if it has none of that name.
double option_of(const TorchOptimizer::Group& group, const std::string& name, double otherwise);

// Maps each number to a parameter of `own`, by name if the optimizer has names. The names may lack
// the prefix that all of `own` share, for example "generator.". Without names, the order of the
// file's model counts, or that of `own`. With several groups, each group has the parameters with
// its weight decay (`weight_decays`, by name). CheckpointError naming `path` if nothing fits.
std::map<int64_t, NamedParameter> numbered(const TorchOptimizer& optimizer,
                                           const std::vector<NamedParameter>& own,
                                           const std::map<std::string, double>& weight_decays,
                                           const ModelOptions& model, const WeightsFile& file,
                                           const std::string& path);

}  // namespace tanren
