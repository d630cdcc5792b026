// Parts: how a run behaves, as against RunState, which is what it is. Read-only for the step.
#pragma once

#include "tanren/plan/plan.h"

#include <c10/core/Device.h>

#include <atomic>

namespace tanren {

struct Parts {
  Plan plan;
  at::Device device = at::kCPU;
  // Set by a signal handler or another thread: stop at the next microstep, resumable.
  const std::atomic<bool>* stop = nullptr;

  bool stop_requested() const { return stop != nullptr && stop->load(std::memory_order_relaxed); }
};

}  // namespace tanren
