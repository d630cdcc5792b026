// Parts: the behaviour of a run; RunState is its state. Read-only for the step.
#pragma once

#include "tanren/base/report.h"
#include "tanren/memory/recovery.h"
#include "tanren/parallel/ranks.h"
#include "tanren/plan/plan.h"
#include "tanren/train/stage_plan.h"

#include <c10/core/Device.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>

namespace tanren {

struct Parts {
  Plan plan;
  at::Device device = at::kCPU;
  // A signal handler or another thread sets it to request a stop at the next microstep. The run can
  // be resumed.
  const std::atomic<bool>* stop = nullptr;
  // Decides what happens when memory runs out. It keeps a state of its own between steps. Never
  // null.
  std::shared_ptr<Recovery> recovery = std::make_shared<Recovery>(MemoryPlan{}, at::kCPU);
  // The other ranks; never null.
  std::shared_ptr<const Ranks> ranks = std::make_shared<Ranks>();
  // What this rank holds of a model in stages; null: the whole model.
  std::shared_ptr<const StagePlan> stage = nullptr;
  // Called for every failure that the step recovers from; may be empty.
  std::function<void(const Incident&)> incident = nullptr;
  // The time from which a stop is requested (run.max_time). The loop sets it on rank 0 only.
  std::optional<std::chrono::steady_clock::time_point> stop_at = std::nullopt;
  // The same for evaluations on the other ranks. Each rank evaluates its own share, and no rank may
  // make the others wait. The loop sets it by rank 0's clock.
  std::optional<std::chrono::steady_clock::time_point> stop_evaluations_at = std::nullopt;

  // Whether this process was asked to stop. The step's report says whether any rank was.
  bool stop_requested() const {
    const bool is_asked = stop != nullptr && stop->load(std::memory_order_relaxed);
    return is_asked || (stop_at && std::chrono::steady_clock::now() >= *stop_at);
  }
  // The same during an evaluation.
  bool stops_evaluation() const {
    return stop_requested() ||
           (stop_evaluations_at && std::chrono::steady_clock::now() >= *stop_evaluations_at);
  }
};

}  // namespace tanren
