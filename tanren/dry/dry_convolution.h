// Convolutions in a dry run. torch reports which of its kernels would compute. The memory that this
// kernel takes beside the tensors is measured: the kernel runs for real on zeros of the same shape,
// or of smaller shapes if that shape is large. If no TraceScope records memory, no kernel runs.
// Used by dry_operators; model/layer_calls uses the sizes.
#pragma once

#include <ATen/core/ivalue.h>

#include <optional>
#include <vector>

namespace tanren {

// The result sizes of torch's `convolution`, in any number of dims, also transposed.
std::vector<int64_t> convolution_sizes(c10::ArrayRef<c10::IValue> arguments);

// `arguments` are in the order of torch's schemas. No value: the operator is left to torch.
std::optional<std::vector<c10::IValue>> dry_convolution_shape(
    const std::vector<c10::IValue>& arguments);
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
