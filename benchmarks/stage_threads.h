// The stages of a model as threads of a benchmark, a core each. They wait between updates, so that
// several sets of stages can be measured in turn in one run.
#pragma once

#include "tanren/plan/planner.h"
#include "tanren/run/replicas.h"
#include "benchmarks/staged_step.h"

#include <ATen/Parallel.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace tanren::bench {

class StageThreads {
 public:
  // `planned`: with parallel.ranks = "threads". Returns when all stages are built.
  StageThreads(const RunConfig& config, const OneBatch& data, StagedPlan planned)
      : planned_(std::move(planned)), times_(planned_.stages.size()) {
    busy_ = times_.size();
    driver_ = std::thread([this, config, &data] {
      on_thread_ranks(planned_.plan,
                      [&](const Plan& plan, const std::shared_ptr<const Ranks>& ranks) {
                        StagedStep stage(config, data, planned_, plan, ranks);
                        serve(stage, static_cast<size_t>(plan.parallel.stage()));
                      });
    });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return busy_ == 0; });
  }
  ~StageThreads() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    driver_.join();
  }
  StageThreads(const StageThreads&) = delete;
  StageThreads& operator=(const StageThreads&) = delete;

  const Plan& plan() const { return planned_.plan; }

  // One update of all stages at the same time; what it took in each.
  std::vector<StageTimes> step() {
    std::unique_lock lock(mutex_);
    busy_ = times_.size();
    ++round_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return busy_ == 0; });
    return times_;
  }

 private:
  void serve(StagedStep& stage, size_t place) {
    for (int64_t seen = 0;; ++seen) {
      std::unique_lock lock(mutex_);
      if (--busy_ == 0) changed_.notify_all();
      changed_.wait(lock, [&] { return ends_ || round_ > seen; });
      if (ends_) return;
      lock.unlock();
      at::set_num_threads(1);  // of this thread; other threads of the benchmark have their own
      const StageTimes took = stage.step();
      lock.lock();
      times_[place] = took;
    }
  }

  StagedPlan planned_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_, up to ends_.
  std::vector<StageTimes> times_;
  size_t busy_ = 0;
  int64_t round_ = 0;
  bool ends_ = false;
  std::thread driver_;
};

}  // namespace tanren::bench
