// Losses as summed terms (base/terms.h): a mean within each sample, summed over samples and counted
// by "samples", so that a sample weighs the same in every batch. Computed in fp32 at least (16-bit
// outputs are cast up; fp64 stays). Called by supervised.h and users.
#pragma once

#include "tanren/base/terms.h"
#include "tanren/ops/linear_cross_entropy.h"

namespace tanren {

// logits [n, classes] with int64 labels [n], or [n, classes, …] with [n, …] (mean over positions).
// label_smoothing in [0, 1) as torch's.
Term cross_entropy(const at::Tensor& logits, const at::Tensor& labels, double label_smoothing = 0);
// logits [n, T, tokens] with int64 labels [n, T]; a label of -100 has no loss. Summed over tokens
// and counted by "tokens", the number of the batch's labels that are not -100.
Term token_cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                         double label_smoothing = 0);
// The factors of a language model's logits.
struct TokenHead {
  at::Tensor states;  // [n, T, width]
  at::Tensor weight;  // [tokens, width]
  at::Tensor bias;    // [tokens], or undefined

  at::Tensor logits() const;  // [n, T, tokens]
};
// token_cross_entropy of head.logits(). If the logits have more rows than options.chunk_rows, they
// are computed that many rows at a time (linear_cross_entropy.h).
Term token_cross_entropy(const TokenHead& head, const at::Tensor& labels,
                         const LinearCrossEntropyOptions& options);
// Binary cross entropy of sigmoid(logits); targets in [0, 1], any dtype.
Term bce(const at::Tensor& logits, const at::Tensor& targets);
// Squared and absolute difference.
Term mse(const at::Tensor& outputs, const at::Tensor& targets);
Term l1(const at::Tensor& outputs, const at::Tensor& targets);
// bce, mse and l1: outputs [n, …] and as many targets as outputs (a [n] target fits [n, 1]); Error
// otherwise. Mean over a sample's outputs.

}  // namespace tanren
