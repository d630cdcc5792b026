// A stage that runs out of memory at any allocation of a window ends the run on all ranks with one
// line, and the next start goes on from the checkpoint.
#include "tests/support/loop_run.h"

#include "tanren/base/error.h"
#include "tanren/base/seconds.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/model/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>

namespace tanren::testing {
namespace {

constexpr int64_t kUpdate = 4, kMicrobatches = 4;
constexpr int64_t kNoFailure = INT64_MAX - 1;  // while allocations are counted

// Lets one allocation fail in one of two stages, which are threads. Counts the allocations from the
// first forward of update kUpdate.
struct Injection {
  int64_t stage = -1;  // 0 or 1; -1: none
  int64_t index = kNoFailure;
  int64_t allocations = 0;  // from there to the last gradient of the update's last backward
  int64_t forwards = 0;
  std::thread::id first_stage = std::this_thread::get_id();

  static constexpr int64_t kFrom = (kUpdate - 1) * kMicrobatches;

  bool is_here() const { return stage == (std::this_thread::get_id() == first_stage ? 0 : 1); }
  void begin_forward() {
    if (!is_here()) return;
    if (forwards == kFrom) fail_cpu_allocation(index);
    ++forwards;
  }
  // In the backward of a weight of the stage.
  void see_gradient() {
    if (!is_here() || forwards <= kFrom || forwards > kFrom + kMicrobatches) return;
    allocations = index - cpu_allocations_until_failure();
  }
};

class StageShortage : public Loop {
 protected:
  // Runs in two stages and lets allocation `index` of `stage` fail. Returns the run's error.
  // Resumes if the folder has a run.
  std::string go_injected(const std::string& folder, int64_t stage, int64_t index) {
    injection_ = {.stage = stage, .index = index};
    ModelRegistry models;
    models.add("narrow", [this](ModelOptions options, const DataInfo& info) {
      options.kind = "mlp";
      Task task = ModelRegistry().make(options, info);
      auto& forward = task.phases.front().forward;
      forward = [this, inner = std::move(forward)](const Batch& batch) {
        if (!is_dry(batch["inputs"])) injection_.begin_forward();
        return inner(batch);
      };
      for (const auto& parameter : task.module->parameters()) {
        parameter.register_hook([this](const at::Tensor& gradient) {
          if (!is_dry(gradient)) injection_.see_gradient();
        });
      }
      return task;
    });
    RunInput input{.config = config(), .folder = folder_.path() / folder};
    std::string error;
    try {
      run(input, Registry(models));
    } catch (const MemoryError& failure) {
      error = failure.what();
    }
    fail_cpu_allocation(INT64_MAX);
    return error;
  }

  static RunConfig config() {
    RunConfig config = looped_config(1);
    config.run.steps = 5;
    config.model.kind = "narrow";
    config.batch.microbatch = 4;  // of 14 samples
    config.checkpoint.every = 2;
    config.parallel.ranks = "threads";
    config.parallel.pipeline = 2;
    config.parallel.replicas = 1;
    config.memory.limit = "8GiB";  // installs our allocator, under a sanitizer too
    return config;
  }

  Injection injection_;
};

TEST_F(StageShortage, at_any_allocation_of_a_window_ends_all_ranks_and_the_run_goes_on) {
  ASSERT_EQ(go_injected("one", -1, kNoFailure), "");
  std::mt19937 random(27);
  for (const int64_t stage : {0, 1}) {
    const std::string number = std::to_string(stage + 1);
    ASSERT_EQ(go_injected("counted " + number, stage, kNoFailure), "");
    const int64_t allocations = injection_.allocations;
    ASSERT_GT(allocations, 25);
    std::set<int64_t> failing = {allocations - 1};
    while (failing.size() < 20) {
      failing.insert(static_cast<int64_t>(random() % static_cast<uint64_t>(allocations)));
    }
    double slowest = 0;
    for (const int64_t index : failing) {
      const std::string folder = number + " " + std::to_string(index);
      SCOPED_TRACE("stage " + number + ", allocation " + std::to_string(index));
      const auto start = std::chrono::steady_clock::now();
      const std::string error = go_injected(folder, stage, index);
      slowest = std::max(slowest, seconds_since(start));
      TANREN_EXPECT_CONTAINS(error, "[memory] step 4, ");
      TANREN_EXPECT_CONTAINS(error, ", stage " + number + " of 2: out of memory");
      EXPECT_EQ(error.find('\n'), std::string::npos) << error;
      if (index == allocations - 1) {
        TANREN_EXPECT_CONTAINS(error, "backward of microbatch 4");
      }
      EXPECT_EQ(last_checkpoint(folder_.path() / folder), 2);
      ASSERT_EQ(go_injected(folder, -1, kNoFailure), "");
      expect_same("one", folder);
      if (HasFailure()) return;
    }
    EXPECT_LT(slowest, 10);
    std::printf("stage %s: 20 of %lld allocations failed, all ranks ended within %.2f s\n",
                number.c_str(), static_cast<long long>(allocations), slowest);
  }
}

}  // namespace
}  // namespace tanren::testing
