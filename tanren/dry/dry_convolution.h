// Convolutions in a dry run: which of torch's kernels computes is asked of torch, and what that
// kernel takes beside the tensors is asked of the kernel itself, which runs for real on zeros of the
// same shape, or of smaller ones where the shape is large. Internal to dry_operators.
#pragma once

#include <ATen/core/ivalue.h>

#include <optional>
#include <vector>

namespace tanren {

// Arguments of the operators as torch's schemas have them. No value: left to torch.
std::optional<std::vector<c10::IValue>> dry_convolution(const std::vector<c10::IValue>& arguments);
std::optional<std::vector<c10::IValue>> dry_convolution_backward(
    const std::vector<c10::IValue>& arguments);
// Those by matrix products of torch's own, for what oneDNN does not do here (fp64; bf16 on old CPUs).
std::optional<std::vector<c10::IValue>> dry_slow_convolution(
    const std::vector<c10::IValue>& arguments);
std::optional<std::vector<c10::IValue>> dry_slow_convolution_backward(
    const std::vector<c10::IValue>& arguments);

}  // namespace tanren
