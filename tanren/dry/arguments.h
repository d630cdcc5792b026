// Arguments and results of an operator, as torch's schemas have them. Internal to dry/.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace tanren {

using Arguments = std::vector<c10::IValue>;
using Results = std::vector<c10::IValue>;

// Undefined if the argument is not a tensor.
inline at::Tensor tensor_in(const c10::IValue& argument) {
  return argument.isTensor() ? argument.toTensor() : at::Tensor();
}

}  // namespace tanren
