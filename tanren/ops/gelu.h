// GELU in its tanh form, as GPT-2 has it. In bf16 on the CPU one pass without tanh;
// otherwise torch's. Called by models. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

namespace tanren {

// Any shape and floating dtype, kept. Differentiable as often as torch's.
at::Tensor gelu_tanh(const at::Tensor& x);

}  // namespace tanren
