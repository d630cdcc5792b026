// global_norm: the 2-norm of gradients, whose squares are summed in double (sums_of_squares.h), so
// that the norms of shards combine to the norm of the whole. (torch 2.11 sums into few fp32
// accumulators and was off by 5e-4 for 13 million normal numbers in one tensor, by 1e-2 for 124
// million.) Thread-safe.
// exact_norm: the same as a double on the host.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/TensorBody.h>

namespace tanren {

// 2-norm over all elements of all gradients, which share dtype and device: 0-dim, at least fp32, on
// their device (0 for an empty list). Infinite if it does not fit that dtype, or if an fp64 square
// does not fit.
at::Tensor global_norm(at::TensorList gradients);

// The same norm as a double. It is finite if all elements are finite and their squares fit into a
// double. Does not copy a dense gradient. Reads the device.
double exact_norm(at::TensorList gradients);

}  // namespace tanren
