// Convolution of images in channels-last bf16 on the CPU, by matrix products if these are faster
// than oneDNN's convolutions. They are for 1 × 1 kernels, forward and both gradients, and for the
// weight gradient of larger kernels, because oneDNN's waits in spin locks when a core is shared.
// All other cases use torch's convolution. An OperatorListener (base/operator_listener.h) hears
// each call as conv2d. Called by models. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

// x [n, in, h, w], weight [out, in, k, k], bias [out] or undefined → [n, out, h', w'], with the
// same zero padding and stride in both directions. Autocast and differentiability are at::conv2d's.
at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       int64_t stride, int64_t padding);

}  // namespace tanren
