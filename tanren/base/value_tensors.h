// The tensors that an operator's argument or result holds, for listeners of operators.
#pragma once

#include <ATen/core/ivalue.h>

namespace tanren {

// Calls look(tensor) for a tensor, or for each tensor of a list. Undefined tensors are left out.
template <class F>
void for_each_tensor(const c10::IValue& value, F&& look) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) look(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (tensor.defined()) look(tensor);
    }
  } else if (value.isOptionalTensorList()) {
    for (const auto& tensor : value.toOptionalTensorVector()) {
      if (tensor && tensor->defined()) look(*tensor);
    }
  }
}

}  // namespace tanren
