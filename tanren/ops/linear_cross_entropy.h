// The head of a language model: scores = states × weightᵀ + bias and their summed cross-entropy, a
// chunk of rows at a time, so that the scores of a batch never exist at once. Invariant: value and
// gradients are those of at::linear and cross_entropy_sum up to rounding; weight gradients are
// summed in fp32 at least. An OperatorListener (base/operator_listener.h) hears an at::linear for
// each chunk, and backward then holds all scores. Called by models. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

struct LinearCrossEntropyOptions {
  double label_smoothing = 0;  // in [0, 1), as torch's
  int64_t chunk_rows = 0;      // rows whose scores are held at once; 0: default_chunk_rows
};

// Rows whose scores fill about 32 million elements, at least 512 rows: few enough that the scores
// stay small next to a batch, and enough for efficient matrix products.
int64_t default_chunk_rows(int64_t classes);
// options.chunk_rows, or the default if that is 0.
int64_t chunk_rows(const LinearCrossEntropyOptions& options, int64_t classes);

// states [rows, width], weight [classes, width], bias [classes] or undefined, labels int64 [rows]:
// the sum over the rows whose label is not -100 of -log softmax(scores)[label], 0-dim, fp32 or (for
// fp64) fp64. Follows autocast. Differentiable once. The gradients are computed along with the
// value, except in fp16, which needs the loss scale: there backward computes the scores again.
// Error for a label that is neither -100 nor in [0, classes).
at::Tensor linear_cross_entropy_sum(const at::Tensor& states, const at::Tensor& weight,
                                    const at::Tensor& bias, const at::Tensor& labels,
                                    const LinearCrossEntropyOptions& options = {});

}  // namespace tanren
