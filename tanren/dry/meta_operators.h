// What a dry run knows of single operators: their results where libtorch has no meta kernel, the
// shapes that weights ask for, and multiply-adds. For meta_scope and, of the last, anatomy/.
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

// Throws Misfit where the first argument does not fit the operator's weight.
void check(std::string_view name, Arguments arguments);

// The results of the operators that are not left to libtorch.
std::optional<std::vector<at::Tensor>> results(std::string_view name, Arguments arguments);

// Multiply-adds of one operator; no value where it has none of its own: what it calls is asked.
// One multiply-add is one product added to a sum; additions of a bias are not counted, and causal
// attention counts as a whole one. Torch's operators stand without "aten::", ours with "tanren::".
std::optional<int64_t> multiply_adds(std::string_view name, Arguments arguments,
                                     const std::vector<at::Tensor>& results);

}  // namespace tanren::meta
