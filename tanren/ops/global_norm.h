// global_norm: the 2-norm of gradients. On the CPU its sum is exact to a few roundings however many
// elements there are (torch 2.11's, whose few fp32 accumulators take all, was off by 5e-4 for 13 million
// normal numbers in one tensor, by 1e-2 for 124 million), so that shares of gradients, measured apart,
// give the norm of the whole. Thread-safe.
// exact_norm: the same in double, for the rare update whose fp32 norm is not finite.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/TensorBody.h>

namespace tanren {

// 2-norm over all elements of all gradients, of one dtype and device: 0-dim, at least fp32, where they
// are (0 for an empty list). Infinite too where the squares do not fit.
at::Tensor global_norm(at::TensorList gradients);

// Finite wherever all elements are and their squares fit double. Makes no copy of a dense gradient. Reads
// the device.
double exact_norm(at::TensorList gradients);

}  // namespace tanren
