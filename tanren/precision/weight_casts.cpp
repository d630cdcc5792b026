#include "tanren/precision/weight_casts.h"

#include "tanren/base/memory_tag.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/_to_copy_ops.h>
#include <torch/library.h>

#include <mutex>
#include <optional>

namespace tanren {

namespace {

// A key above autocast and autograd that no backend uses; a dry run takes another
// (dry/dry_scope.cpp).
constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

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
  return at::_ops::_to_copy::redispatch(
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), self, dtype, layout,
      device, pin_memory, non_blocking, memory_format);
}

c10::DispatchKey registered() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Never destroyed: at exit other threads may still be running through it.
    static auto* const rest =
        new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    rest->fallback(torch::CppFunction::makeFallthrough());
    static auto* const torchs =
        new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
    torchs->impl("_to_copy", to_copy);
  });
  return kKey;
}

}  // namespace

WeightCastScope::WeightCastScope() : seen_(registered()) {}

}  // namespace tanren
