// Convolution of images in channels-last bf16 on the CPU, where products of matrices do better than
// oneDNN's own convolutions: 1 × 1 kernels in all three directions, and the gradient of larger
// kernels' weights, which there waits in spin locks when a core is shared. Elsewhere torch's.
// Called by models. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

// x [n, in, h, w], weight [out, in, k, k], bias [out] or undefined → [n, out, h', w'], with the same
// zero padding and stride in both directions, as at::conv2d and under the same autocast.
// Differentiable as often as that.
at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       int64_t stride, int64_t padding);

}  // namespace tanren
