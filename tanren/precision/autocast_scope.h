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

c10::ScalarType dtype_of(Mode mode);
// The dtype of parameters, buffers and fields of a batch: fp64 in mode fp64, else that of
// cast_model_type. keep_batchnorm_fp32 spares the batch norms.
c10::ScalarType parameter_dtype(const PrecisionPlan& plan);
// Whether operators are cast inside forward: mode bf16 or fp16 with patch_torch_functions.
bool uses_autocast(const PrecisionPlan& plan);

class AutocastScope {
 public:
  // Casts operators if the plan says so. Otherwise it only switches off an outer autocast.
  AutocastScope(c10::DeviceType device, const PrecisionPlan& plan);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  c10::DeviceType device_;
  bool enabled_before_;
  bool cache_before_;
  c10::ScalarType dtype_before_;
  std::optional<WeightCastScope> casts_;  // set if operators are cast
};

class WindowScope {
 public:
  // `open`: the number of open windows in all replicas of this process; null: there are no others.
  explicit WindowScope(const PrecisionPlan& plan, std::atomic<int>* open = nullptr);
  ~WindowScope();
  WindowScope(const WindowScope&) = delete;
  WindowScope& operator=(const WindowScope&) = delete;

 private:
  bool active_;
  std::atomic<int>* open_;
};

}  // namespace tanren
