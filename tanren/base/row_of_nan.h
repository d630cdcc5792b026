// What stands in the place of a parameter whose numbers are elsewhere, in 8 bits
// (quantize/replaced.h): one row of NaN, expanded. A file of it would hold no weight. Asked by all
// that writes tensors (formats/), before the first byte.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

namespace tanren {

// InputError, with the tensor's `name`, for a floating tensor of more than one row, all of them the
// same memory, which is NaN. Of one row nothing shows it.
void refuse_row_of_nan(std::string_view name, const at::Tensor& tensor);

}  // namespace tanren
