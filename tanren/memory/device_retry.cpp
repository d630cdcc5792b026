#include "tanren/memory/device_retry.h"

#include "tanren/memory/gauge.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <mutex>
#include <utility>
#include <vector>

namespace tanren {

namespace {

// A key above autocast and autograd that no backend uses. The hook and dry runs take others
// (base/operator_hook.cpp, dry/dry_scope.cpp).
constexpr auto kRetryKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

thread_local DeviceReserve* retry_reserve = nullptr;
// True after an operator has failed twice. Operators that called it must not be retried, because
// they may already have written something.
thread_local bool retry_failed = false;

// Runs every operator in a DeviceRetryScope, including those that other operators call.
void run_twice(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  keys = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kRetryKey);
  const size_t count = op.schema().arguments().size();
  const size_t below = stack->size() - count;
  const std::vector<c10::IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(count),
                                           stack->end());
  retry_failed = false;
  try {
    op.redispatchBoxed(keys, stack);
    return;
  } catch (const c10::OutOfMemoryError&) {
    if (retry_failed || retry_reserve == nullptr) throw;
  }
  retry_reserve->release();
  stack->resize(below);
  stack->insert(stack->end(), arguments.begin(), arguments.end());
  try {
    op.redispatchBoxed(keys, stack);
  } catch (const c10::OutOfMemoryError&) {
    retry_failed = true;
    throw;
  }
}

void register_retries() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Never destroyed: at exit other threads may still be running through it.
    static auto* const all =
        new torch::Library(torch::Library::IMPL, "_", kRetryKey, __FILE__, __LINE__);
    all->fallback(torch::CppFunction::makeFromBoxedFunction<&run_twice>());
  });
}

}  // namespace

void DeviceReserve::fill() {
  if (device_.is_cpu() || bytes_ <= 0 || held_.defined()) return;
  try {
    held_ = at::empty({bytes_}, at::TensorOptions(at::kByte).device(device_));
  } catch (const c10::OutOfMemoryError&) {  // the retry then has no reserve
    held_.reset();
  }
}

void DeviceReserve::release() {
  held_.reset();
  MemoryGauge(device_).release_cache();
}

DeviceRetryScope::DeviceRetryScope(DeviceReserve& reserve)
    : outer_(std::exchange(retry_reserve, &reserve)) {
  if (reserve.device().is_cpu()) return;
  register_retries();
  reserve.fill();
  included_.emplace(kRetryKey);
}

DeviceRetryScope::~DeviceRetryScope() { retry_reserve = outer_; }

NoDeviceRetryScope::NoDeviceRetryScope() : excluded_(kRetryKey) {}

}  // namespace tanren
