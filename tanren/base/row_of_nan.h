// The placeholder of a parameter whose numbers are kept elsewhere in 8 bits (quantize/replaced.h):
// one row of NaN, expanded. A file with a placeholder would lack the weight, so every writer of
// tensors (formats/) checks for it before the first byte.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

namespace tanren {

// Throws InputError, with the tensor's `name`, for a floating tensor whose rows share the same
// memory (stride 0) and hold only NaN.
void refuse_row_of_nan(std::string_view name, const at::Tensor& tensor);

}  // namespace tanren
