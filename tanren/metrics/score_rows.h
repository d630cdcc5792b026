// Predictions of classes as rows of scores with a label each, in pieces small enough that what a
// metric computes from them never multiplies the memory of the scores themselves (a language model's
// are [n, 50257, T]). Pure functions. Used by evaluation_metrics.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace tanren {

// Elements of a piece's scores, at most (one row where that has more).
inline constexpr int64_t kPieceElements = int64_t{1} << 21;

using UseRows = std::function<void(const at::Tensor& scores, const at::Tensor& labels)>;

// Hands on scores [m, classes] and labels [m] (int64; -100: ignored) in order. outputs
// [n, classes, …] with integer targets [n, …]; RunError naming both shapes if they do not fit.
void for_rows(const at::Tensor& outputs, const at::Tensor& targets, const UseRows& use);

// The same of binary predictions: one output per floating target (> 0.5: class 1), of one shape;
// the scores are {0, output}.
void for_binary_rows(const at::Tensor& outputs, const at::Tensor& targets, const UseRows& use);

}  // namespace tanren
