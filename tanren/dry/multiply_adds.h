// The multiply-adds of single operators. Used by the observers of a dry run and by anatomy/.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tanren {

// Multiply-adds of one operator; no value if it has none of its own: then the operators that it
// calls are counted. One multiply-add is one product added to a sum. Additions of a bias are not
// counted; causal attention counts as full attention. `name`: torch's operators without "aten::",
// ours with "tanren::".
std::optional<int64_t> multiply_adds(std::string_view name, c10::ArrayRef<c10::IValue> arguments,
                                     const std::vector<at::Tensor>& results);

}  // namespace tanren
