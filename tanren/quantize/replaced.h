// A replaced parameter: its numbers are stored elsewhere, in 8 bits. The parameter itself is one
// row of NaN, expanded to its shape. An operator that no QuantizeScope computes reads NaN, never a
// wrong number; a kernel that reads data_ptr as if the parameter were contiguous reads past the
// row. It is a row and not one number, because its strides distinguish a weight from its transpose,
// and channels-last from contiguous. Called by quantize_scope, readers of files, and train/build.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace tanren {

// Whether the parameters that become 8-bit still have their numbers, or the reader of a file has
// already freed them by replace_by_nan.
enum class ReplacedNumbers { there, freed };

// Gives the parameter the row of NaN, in its own dtype and memory format, and frees its numbers.
// Tensors that share its memory, such as a view that a module took in its constructor or a
// detach(), become NaN; a copy keeps the numbers. The parameter no longer requires a gradient. A
// parameter that is already replaced (is_replaced) keeps its row, whose numbers become NaN.
void replace_by_nan(at::Tensor parameter);

// Checks that the stride of dim 0 is 0, as it also is for a replaced parameter of one row.
bool is_replaced(const at::Tensor& parameter);

// InputError, with the parameter's `name`, if it is replaced: it cannot be quantised again.
void refuse_replaced(const at::Tensor& parameter, const std::string& name);

// A replaced parameter [out, in, height, width] in channels-last, still one row.
void lay_replaced_channels_last(at::Tensor parameter);

}  // namespace tanren
