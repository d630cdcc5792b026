// AutocastScope: op-wise casting for one forward of this thread. WindowScope: keeps the casts of
// the weights alive over the microsteps of one update, so that each weight is cast once.
// Invariant: a WindowScope ends before the weights change, or the next forward would use stale
// casts. libtorch's cast cache is process-wide: replicas that are threads count their open windows
// together, and the last to end clears it; none of them changes a weight before all have ended.
#pragma once

#include "tanren/plan/plan.h"
#include "tanren/precision/weight_casts.h"

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <atomic>
#include <optional>

namespace tanren {

// The dtype that forward computes in: fp32 for fp32, bf16/fp16 under autocast, fp64.
c10::ScalarType compute_dtype(Mode mode);
// The dtype of parameters, gradients and optimizer state: fp64 in mode fp64, else fp32.
c10::ScalarType parameter_dtype(Mode mode);
// Whether the mode works by casting inside forward (bf16, fp16).
bool uses_autocast(Mode mode);

class AutocastScope {
 public:
  // Does nothing for fp32 and fp64, apart from shielding from an outer autocast.
  AutocastScope(c10::DeviceType device, Mode mode);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  c10::DeviceType device_;
  bool enabled_before_;
  bool cache_before_;
  c10::ScalarType dtype_before_;
  std::optional<WeightCastScope> casts_;  // set if the mode casts
};

class WindowScope {
 public:
  // `open`: counts the windows that are open now, in all replicas of this process; null: no others.
  explicit WindowScope(Mode mode, std::atomic<int>* open = nullptr);
  ~WindowScope();
  WindowScope(const WindowScope&) = delete;
  WindowScope& operator=(const WindowScope&) = delete;

 private:
  bool active_;
  std::atomic<int>* open_;
};

}  // namespace tanren
