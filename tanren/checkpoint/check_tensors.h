// Whether saved tensors fit a model: strict, and all that differs in one error.
#pragma once

#include "tanren/base/tensor_map.h"

#include <string>

namespace tanren {

// CheckpointError listing what is missing, unexpected, or of another shape or dtype (names with
// shapes, at most 10 of each); `what` names the saved side ("runs/x/checkpoints/step-5"), `advice` says
// what to do.
void check_names_and_shapes(
    const TensorMap& expected, const TensorMap& found, const std::string& what,
    const std::string& advice = "use the [model] section that it was written with");

}  // namespace tanren
