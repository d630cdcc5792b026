// global_norm: the 2-norm of gradients. On the CPU its sum is exact to a few roundings however many
// elements there are (torch's own, in one fp32 accumulator a lane, is off by 1e-3 at a million), so that
// shares of gradients, measured apart, give the norm of the whole. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/TensorBody.h>

namespace tanren {

// 2-norm over all elements of all gradients, of one dtype and device: 0-dim, at least fp32, where they
// are (0 for an empty list). Infinite too where the squares do not fit.
at::Tensor global_norm(at::TensorList gradients);

}  // namespace tanren
