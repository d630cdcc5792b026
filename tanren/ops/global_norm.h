// global_norm: the 2-norm of gradients. On the CPU its sum is exact to a few roundings for any
// number of elements, so that the norms of shards combine to the norm of the whole. (torch 2.11
// sums into few fp32 accumulators and was off by 5e-4 for 13 million normal numbers in one tensor,
// by 1e-2 for 124 million.) Thread-safe.
// exact_norm: the same in double, for the rare update whose fp32 norm is not finite.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/TensorBody.h>

namespace tanren {

// 2-norm over all elements of all gradients, which share dtype and device: 0-dim, at least fp32, on
// their device (0 for an empty list). Also infinite if the squares overflow.
at::Tensor global_norm(at::TensorList gradients);

// The same norm, computed in double. It is finite if all elements are finite and their squares fit
// into a double. Does not copy a dense gradient. Reads the device.
double exact_norm(at::TensorList gradients);

}  // namespace tanren
