// Ranks that are threads of this process: each is a replica of the model, or of a stage, with its
// share of the cores or with its own device. An exception in one ends all of them, and is rethrown.
// Internal to run/.
#pragma once

#include "tanren/parallel/ranks.h"
#include "tanren/plan/plan.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

#include <functional>
#include <mutex>
#include <utility>

namespace tanren {

// Calls `work` with each rank's plan and its view of the other ranks; rank 0 runs on this thread.
// Returns once all ranks have returned. Rethrows the first exception, not those of ranks that it
// cancelled.
void on_thread_ranks(const Plan& plan,
                     const std::function<void(const Plan&, std::shared_ptr<const Ranks>)>& work);

// The states of these ranks, made one after the other. A rank's weights are those of the first task
// (which model.init_from may have filled), bitwise. The first task stays whole until every other
// rank has dropped what its stage does not hold, so at most two models are whole at a time.
class StatesInTurn {
 public:
  StatesInTurn(Task first, std::function<Task()> make_task)
      : first_(std::move(first)), make_task_(std::move(make_task)) {}

  // The state of the rank with these parts. An exchange: every rank calls it once.
  RunState make(const Parts& parts);

 private:
  Task first_;
  std::function<Task()> make_task_;
  std::mutex turn_;
};

}  // namespace tanren
