// What stands in the place of a parameter whose numbers are elsewhere, in 8 bits
// (quantize/replaced.h): one row of NaN, expanded. A file of it would hold no weight. Asked by all
// that writes tensors (formats/), before the first byte.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

namespace tanren {

// InputError, with the tensor's `name`, for a floating tensor whose rows, by a stride of 0, are all
// the same memory, which is NaN.
void refuse_row_of_nan(std::string_view name, const at::Tensor& tensor);

}  // namespace tanren
