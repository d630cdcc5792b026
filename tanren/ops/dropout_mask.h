// Masks of counter-based dropout (dropout.h): which elements are kept. On the CPU, and on a device
// that has a kernel for tanren::dropout_mask, one pass draws a mask; elsewhere about 100 operations
// on int64 tensors do, with the same result. Called by dropout and attention. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

// Which elements of a [ids.size(0), …] tensor of shape `sizes` are kept: bool, contiguous, on
// `device`. Errors as dropout().
at::Tensor dropout_mask(at::IntArrayRef sizes, double p, uint64_t site,
                        at::Device device = at::kCPU);

// The attention weight of head h, row r, column c is element (r · heads + h) · kRowDraws + c of its
// sample, so the number of rows and columns that a batch is padded to changes no draw. Error if a
// sample's heads together have more than 2^29 rows, because element indices are int64.
constexpr int64_t kRowDraws = int64_t{1} << 34;
// Which attention weights of shape `sizes`, [ids.size(0), heads, rows, columns], are kept: as
// dropout_mask().
at::Tensor attention_mask(at::IntArrayRef sizes, double p, uint64_t site, at::Device device);

// The operations on int64 tensors, on the device of `ids` [n]: the reference of the kernels.
// `columns` elements of a row are drawn from adjacent counters; for attention a row is a head's.
at::Tensor dropout_mask_reference(const at::Tensor& ids, at::IntArrayRef sizes, int64_t key,
                                  int64_t threshold, bool is_attention);

}  // namespace tanren
