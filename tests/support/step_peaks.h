// The memory peak of one training step of a config: predicted by a dry run, and measured by the
// allocator. For the tests of predictions.
#pragma once

#include "tests/support/tiny_run.h"

#include "tanren/forecast/predict.h"
#include "tanren/memory/cpu_allocator.h"

#include <gtest/gtest.h>
#include <ATen/Parallel.h>

#include <functional>
#include <optional>

namespace tanren::testing {

struct StepPeaks {
  int64_t predicted = 0, measured = 0;
  MemoryByKind predicted_kinds = {};
  double error() const {
    return static_cast<double>(predicted - measured) / static_cast<double>(measured);
  }
};

// Removes the limit and uninstalls the allocator at the end of each test.
class StepPeaksTest : public ::testing::Test {
 protected:
  void TearDown() override {
    set_cpu_memory_limit(0);
    uninstall_cpu_allocator();
  }
};

// The peaks of the `step`-th step, without the memory of the data, with threads and device as
// planned. `make_task` may be empty: the config's.
inline StepPeaks step_peaks(const RunConfig& config, std::function<Task()> make_task = {},
                            int step = 2) {
  install_cpu_allocator();
  const int threads_before = at::get_num_threads();
  const auto dataset = open_dataset(config.data.train, "data.train");
  const int64_t before = cpu_memory_stats().live_bytes;
  StepPeaks peaks;
  Plan plan;
  {
    TinyRun run(config, dataset.get(), make_task ? std::optional(make_task()) : std::nullopt);
    plan = run.parts.plan;
    apply_device_plan(plan);
    run.steps(step - 1);
    const GlobalBatch batch = run.loader->next();
    restart_cpu_memory_peak();
    run.step(batch);
    peaks.measured = cpu_memory_stats().recent_peak_bytes - before;
  }
  at::set_num_threads(threads_before);
  const int64_t live = cpu_memory_stats().live_bytes;
  restart_cpu_memory_peak();
  if (!make_task) make_task = [&] { return build_task(config, ModelRegistry(), *dataset); };
  const MemoryPrediction prediction = StepPredictor(make_task, *dataset).step(plan);
  peaks.predicted = prediction.peak_bytes;
  peaks.predicted_kinds = prediction.at_peak;
  EXPECT_EQ(cpu_memory_stats().live_bytes, live);
  EXPECT_LT(cpu_memory_stats().recent_peak_bytes - live, peaks.predicted / 10 + (1 << 20));
  return peaks;
}

}  // namespace tanren::testing
