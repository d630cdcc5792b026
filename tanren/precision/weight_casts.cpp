#include "tanren/precision/weight_casts.h"

#include "tanren/base/memory_tag.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/_to_copy_ops.h>
#include <torch/library.h>

#include <optional>

namespace tanren {

namespace {

// Whether autocast keeps the cast in its cache, by its own rule.
bool is_kept(const at::Tensor& tensor, std::optional<at::ScalarType> dtype) {
  return dtype && tensor.scalar_type() == at::kFloat && tensor.requires_grad() &&
         tensor.is_leaf() && !tensor.is_view() && at::autocast::is_autocast_cache_enabled() &&
         *dtype == at::autocast::get_autocast_dtype(tensor.device().type());
}

at::Tensor to_copy(c10::DispatchKeySet keys, const at::Tensor& self,
                   std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                   std::optional<at::Device> device, std::optional<bool> pin_memory,
                   bool non_blocking, std::optional<at::MemoryFormat> memory_format) {
  std::optional<MemoryScope> memory;
  if (is_kept(self, dtype)) memory.emplace(MemoryKind::casts);
  return at::_ops::_to_copy::redispatch(below_hook(keys), self, dtype, layout, device, pin_memory,
                                        non_blocking, memory_format);
}

}  // namespace

WeightCastScope::WeightCastScope() {
  static const bool added = [] {
    add_to_hook([](torch::Library& operators) { operators.impl("_to_copy", to_copy); });
    return true;
  }();
  (void)added;
}

}  // namespace tanren
