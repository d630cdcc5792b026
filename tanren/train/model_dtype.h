// The dtype that each tensor of a model has in a run, by the plan's precision. Called by build, the
// checkpoints and the plan's line about models that come in another dtype.
#pragma once

#include "tanren/plan/plan.h"

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace tanren {

// Names of the parameters and buffers of batch norms with weights, which keep_batchnorm_fp32
// spares.
std::set<std::string> batch_norm_tensors(const torch::nn::Module& module);

// Moves the module to the device and its floating tensors to their dtypes, in place. Counters keep
// theirs.
void move_module(torch::nn::Module& module, c10::Device device, const PrecisionPlan& plan);

// Floating tensors of the model that are not fp32, as it comes.
using OddDtypes = std::vector<std::pair<std::string, c10::ScalarType>>;
OddDtypes odd_dtypes(const torch::nn::Module& module);

// A line for the plan about those tensors that the run converts; none if there are none.
std::optional<PlanLine> dtype_line(const OddDtypes& odd, const Plan& plan);

}  // namespace tanren
