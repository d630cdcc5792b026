// Convolutions in a dry run. torch reports which of its kernels would compute. The memory that this
// kernel takes beside the tensors is measured: the kernel runs for real on zeros of the same shape,
// or of smaller shapes if that shape is large. Internal to dry_operators.
#pragma once

#include <ATen/core/ivalue.h>

#include <optional>
#include <vector>

namespace tanren {

// `arguments` are in the order of torch's schemas. No value: the operator is left to torch.
std::optional<std::vector<c10::IValue>> dry_convolution(const std::vector<c10::IValue>& arguments);
std::optional<std::vector<c10::IValue>> dry_convolution_backward(
    const std::vector<c10::IValue>& arguments);
// torch's own convolutions by matrix products, for cases that oneDNN does not compute here (fp64;
// bf16 on old CPUs).
std::optional<std::vector<c10::IValue>> dry_slow_convolution(
    const std::vector<c10::IValue>& arguments);
std::optional<std::vector<c10::IValue>> dry_slow_convolution_backward(
    const std::vector<c10::IValue>& arguments);

}  // namespace tanren
