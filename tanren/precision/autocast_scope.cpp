#include "tanren/precision/autocast_scope.h"

#include <ATen/autocast_mode.h>

namespace tanren {

namespace autocast = at::autocast;

c10::ScalarType dtype_of(Mode mode) {
  switch (mode) {
    case Mode::bf16: return c10::kBFloat16;
    case Mode::fp16: return c10::kHalf;
    case Mode::fp64: return c10::kDouble;
    case Mode::fp32: break;
  }
  return c10::kFloat;
}

c10::ScalarType parameter_dtype(const PrecisionPlan& plan) {
  return plan.mode == Mode::fp64 ? c10::kDouble : dtype_of(plan.cast_model_type);
}

bool uses_autocast(const PrecisionPlan& plan) {
  return plan.patch_torch_functions && (plan.mode == Mode::bf16 || plan.mode == Mode::fp16);
}

AutocastScope::AutocastScope(c10::DeviceType device, const PrecisionPlan& plan)
    : device_(device),
      enabled_before_(autocast::is_autocast_enabled(device)),
      cache_before_(autocast::is_autocast_cache_enabled()),
      dtype_before_(autocast::get_autocast_dtype(device)) {
  const bool on = uses_autocast(plan);
  autocast::increment_nesting();
  autocast::set_autocast_enabled(device_, on);
  if (on) {
    autocast::set_autocast_dtype(device_, dtype_of(plan.mode));
    autocast::set_autocast_cache_enabled(true);
    casts_.emplace();
  }
}

AutocastScope::~AutocastScope() {
  if (autocast::decrement_nesting() == 0) autocast::clear_cache();
  autocast::set_autocast_enabled(device_, enabled_before_);
  autocast::set_autocast_dtype(device_, dtype_before_);
  autocast::set_autocast_cache_enabled(cache_before_);
}

WindowScope::WindowScope(const PrecisionPlan& plan, std::atomic<int>* open)
    : active_(uses_autocast(plan)), open_(open) {
  if (!active_) return;
  if (open_ != nullptr) ++*open_;
  autocast::increment_nesting();
}

WindowScope::~WindowScope() {
  if (!active_) return;
  autocast::decrement_nesting();
  if (open_ == nullptr || --*open_ == 0) autocast::clear_cache();
}

}  // namespace tanren
