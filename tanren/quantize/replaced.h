// A replaced parameter: its numbers are elsewhere, in 8 bits, and in their place stands one row of
// NaN, expanded to the parameter's shape. An operator that nobody answers reads NaN, never a wrong
// number; a kernel that reads data_ptr as if the parameter were contiguous reads past the row. A
// row, not one number: its strides tell a weight from its transpose, and whether it is
// channels-last. Called by quantize_scope, readers of files, and train/build.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace tanren {

// Of parameters that become 8-bit: whether they still have their numbers, or what reads a file has
// freed them before by replace_by_nan.
enum class ReplacedNumbers { there, freed };

// Gives the parameter the NaNs, in its own dtype and memory format, and frees its numbers. They
// become NaN for whoever else holds them, such as a view that a module took in its constructor: a
// copy keeps them, a detach() does not. The parameter no longer requires a gradient. One that has a
// single row already (is_replaced) keeps it, and its numbers become NaN.
void replace_by_nan(at::Tensor parameter);

// By the stride of dim 0, which is 0, also of a parameter of one row.
bool is_replaced(const at::Tensor& parameter);

// InputError, with the parameter's `name`, if it is replaced: it cannot be quantised again.
void refuse_replaced(const at::Tensor& parameter, const std::string& name);

// A replaced parameter [out, in, height, width] in channels-last, still one row.
void lay_replaced_channels_last(at::Tensor parameter);

}  // namespace tanren
