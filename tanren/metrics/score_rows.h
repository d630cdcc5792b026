// Splits predictions of classes into rows of scores with a label each. The pieces are so small that
// what a metric computes from them never multiplies the memory of the scores themselves (a language
// model's are [n, 50257, T]). Pure functions. Used by evaluation_metrics.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace tanren {

// Largest number of scores in a piece; a single row may have more.
inline constexpr int64_t kPieceElements = int64_t{1} << 21;

using UseRows = std::function<void(const at::Tensor& scores, const at::Tensor& labels)>;

// Passes scores [m, classes] and labels [m] (int64; -100: ignored) to `use`, in order. outputs are
// [n, classes, …] with integer targets [n, …]; RunError naming both shapes if they do not fit.
void for_rows(const at::Tensor& outputs, const at::Tensor& targets, const UseRows& use);

// The same for binary predictions: one output per floating target (> 0.5: class 1), both of one
// shape; the scores are {0, output}.
void for_binary_rows(const at::Tensor& outputs, const at::Tensor& targets, const UseRows& use);

}  // namespace tanren
