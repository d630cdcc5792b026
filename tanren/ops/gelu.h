// GELU in its tanh form, as in GPT-2. In bf16 on the CPU it is one pass without tanh; otherwise
// torch's operator. Called by models. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

namespace tanren {

// Keeps x's shape and floating dtype. Differentiable as often as torch's.
at::Tensor gelu_tanh(const at::Tensor& x);

}  // namespace tanren
