// A strict check that saved tensors fit a model. One error lists all differences.
#pragma once

#include "tanren/base/tensor_map.h"

#include <string>

namespace tanren {

// CheckpointError listing the tensors that are missing, unexpected, or of another shape or dtype
// (names with shapes, at most 10 of each). A floating tensor of fewer than 32 bits in `expected`
// may be fp32 in `found`. `what` names the saved side ("runs/x/checkpoints/step-5"), `advice` is
// what the user should do.
void check_names_and_shapes(
    const TensorMap& expected, const TensorMap& found, const std::string& what,
    const std::string& advice = "use the [model] section that it was written with");

}  // namespace tanren
