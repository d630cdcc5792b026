// Cross-entropy of a language model's scores, summed. Reads 16-bit scores without an fp32 copy or a
// matrix of probabilities; the sums are in fp32 or fp64. Called by models. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

// logits [rows, classes] of any floating dtype, labels int64 [rows]: the sum over the rows whose
// label is not -100 of -log softmax(logits)[label], 0-dim, fp32 or (for fp64) fp64. Differentiable
// once on the CPU. Error for a label that is neither -100 nor in [0, classes).
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& labels);

// The same with ATen operations, on scores cast to fp32 at least: the reference, and CUDA's path.
at::Tensor cross_entropy_sum_reference(const at::Tensor& logits, const at::Tensor& labels,
                                       double label_smoothing = 0);

// Error for a label that is neither -100 nor in [0, classes). labels: contiguous int64 on the CPU.
void check_labels(const at::Tensor& labels, int64_t classes);

}  // namespace tanren
