// Lets every allocation of a step of one of two ranks fail in turn. That rank must recover alone
// while the other only waits; weights and number of collectives must stay the same. Included by
// tests only.
#pragma once

#include "tanren/memory/cpu_allocator.h"
#include "tests/support/allocations.h"
#include "tests/support/eventful.h"
#include "tests/support/rank_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace tanren::testing {

inline const Dataset& dataset_of(const RankRun& run) { return run.dataset; }

struct InjectedStep {
  at::Tensor weights, gradients;  // gradients: unless sharded
  bool failed = false;
  int64_t recoveries = 0, operations = 0;
};

// Two updates on two ranks; allocation `index` of rank 1's second update fails.
inline InjectedStep injected_step(const RunConfig& config, const Dataset& data, int64_t index) {
  const ThreadGroup group(2);
  InjectedStep result;
  on_ranks(group, 2, [&](Communicator& comm) {
    RankRun run(config, data, comm);
    run.step();
    const GlobalBatch batch = run.batches->next();
    if (comm.rank() == 1) fail_cpu_allocation(index);
    const auto report = update(run.state, run.parts, batch);
    EXPECT_EQ(report->objectives[0].step, 2);
    if (comm.rank() == 0) {
      result.weights = run.weights();
      if (!run.objective().gradients.sharding().on()) result.gradients = run.gradients();
      return;
    }
    result.failed = cpu_allocations_until_failure() < 0;
    fail_cpu_allocation(INT64_MAX);
    result.recoveries = run.parts.recovery->num_failures();
  });
  result.operations = group.num_operations();
  return result;
}

// For fp64 configs. Allocations outside of microsteps are retried at once and interrupt nothing.
inline void expect_any_allocation_may_fail(const RunConfig& config, const Dataset& data,
                                           const char* what) {
  const InjectedStep expected = injected_step(config, data, INT64_MAX);
  EXPECT_EQ(expected.recoveries, 0);
  int64_t injections = 0, recoveries = 0;
  double worst = 0;
  const int64_t stride = allocation_stride(5), first = first_allocation(stride);
  SCOPED_TRACE("from allocation " + std::to_string(first));
  for (int64_t index = first;; index += stride) {
    const InjectedStep got = injected_step(config, data, index);
    if (!got.failed) break;
    ++injections;
    recoveries += got.recoveries;
    worst = std::max(worst, relative(got.weights, expected.weights));
    EXPECT_EQ(got.operations, expected.operations) << index;
  }
  std::printf(
      "%s: %lld allocations of rank 1 failed, %lld microsteps recovered, weights within %.1e\n",
      what, static_cast<long long>(injections), static_cast<long long>(recoveries), worst);
  EXPECT_GT(recoveries, 30);
  EXPECT_LT(worst, 1e-10);
}

// One update on two ranks, then an overflow, a skip, an update, an evaluation and a checkpoint.
// Allocation `index` of rank 1 after the first update fails.
inline InjectedStep injected_events(const RunConfig& config, const Dataset& data, int64_t index) {
  const ThreadGroup group(2);
  const TemporaryFolder folder;
  InjectedStep result;
  on_ranks(group, 2, [&](Communicator& comm) {
    RankRun run(config, data, comm);
    run.step();
    const Events events = events_of([&] { return run.batches->next(); });
    if (comm.rank() == 1) fail_cpu_allocation(index);
    go_through(run, events, folder.path());
    if (comm.rank() == 0) {
      result.weights = run.weights();
      expect_stored(run.state, folder.path());
      return;
    }
    result.failed = cpu_allocations_until_failure() < 0;
    fail_cpu_allocation(INT64_MAX);
    result.recoveries = run.parts.recovery->num_failures();
  });
  result.operations = group.num_operations();
  return result;
}

}  // namespace tanren::testing
