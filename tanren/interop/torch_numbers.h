// Which parameter each number of a torch optimizer means. torch.optim numbers parameters group by
// group, in the order in which it was given them, and names them only if it was given
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

// Each number's parameter among `own`, by name where the optimizer has names. A name that `own`
// lacks may also be one without the prefix that all of `own` share, such as "generator.". Without
// names: by order of the file's model, or of `own`; with several groups, each has the parameters
// with its weight decay (`weight_decays`, by name). CheckpointError naming `path` if nothing fits.
std::map<int64_t, NamedParameter> numbered(const TorchOptimizer& optimizer,
                                           const std::vector<NamedParameter>& own,
                                           const std::map<std::string, double>& weight_decays,
                                           const ModelOptions& model, const WeightsFile& file,
                                           const std::string& path);

}  // namespace tanren
