#include "tanren/base/operator_hook.h"

#include <torch/library.h>

#include <mutex>

namespace tanren {

namespace {

constexpr auto kHookKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

// The hook's library of torch's operators. The first call also registers the fall-through. It is
// never destroyed, because at exit other threads may still call its operators.
torch::Library& hooked_operators() {
  static auto* const operators = [] {
    auto* const rest = new torch::Library(torch::Library::IMPL, "_", kHookKey, __FILE__, __LINE__);
    rest->fallback(torch::CppFunction::makeFallthrough());
    return new torch::Library(torch::Library::IMPL, "aten", kHookKey, __FILE__, __LINE__);
  }();
  return *operators;
}

c10::DispatchKey hook_with_fall_through() {
  hooked_operators();
  return kHookKey;
}

}  // namespace

void add_to_hook(void (*add)(torch::Library& operators)) {
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  add(hooked_operators());
}

c10::DispatchKeySet below_hook(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kHookKey);
}

OperatorHookScope::OperatorHookScope() : open_(hook_with_fall_through()) {}

}  // namespace tanren
