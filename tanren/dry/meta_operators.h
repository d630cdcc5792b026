// What a dry run knows about single operators: their results if libtorch has no meta kernel, the
// input shapes that their weights need, and their multiply-adds. Used by meta_scope; anatomy/ uses
// the multiply-adds.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tanren::meta {

using Arguments = c10::ArrayRef<c10::IValue>;

// An input that does not fit the operator's weight.
struct Misfit : std::runtime_error {
  Misfit(std::string expected_shape, const std::string& reason)
      : std::runtime_error(reason), expected(std::move(expected_shape)) {}
  std::string expected;
};

// Throws Misfit if the first argument does not fit the operator's weight.
void check(std::string_view name, Arguments arguments);

// The results of an operator; no value: the operator is left to libtorch.
std::optional<std::vector<at::Tensor>> results(std::string_view name, Arguments arguments);

// Multiply-adds of one operator; no value if it has none of its own: then the operators that it
// calls are counted. One multiply-add is one product added to a sum. Additions of a bias are not
// counted; causal attention counts as full attention. `name`: torch's operators without "aten::",
// ours with "tanren::".
std::optional<int64_t> multiply_adds(std::string_view name, Arguments arguments,
                                     const std::vector<at::Tensor>& results);

}  // namespace tanren::meta
