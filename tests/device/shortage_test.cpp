// A device that runs out of memory at any allocation of a step costs only time. The simulated
// device fails a chosen allocation.
#include "tests/support/accelerator/accelerator.h"
#include "tests/support/allocations.h"
#include "tests/support/block_config.h"
#include "tests/support/eventful.h"

#include "tanren/base/testing.h"
#include "tanren/memory/cache_release.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <map>
#include <string>

namespace tanren::testing {
namespace {

class DeviceShortage : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!sim::installed()) GTEST_SKIP() << "only the simulated device fails a chosen allocation";
  }
  void TearDown() override {
    if (sim::installed()) sim::fail_allocation(0);  // also after a skipped test
  }
};

struct Injected {
  int64_t allocations = 0, tried = 0, recovered = 0;
  double worst = 0;
  std::map<std::string, int64_t> errors;  // their first lines
};

// Lets every `stride`-th allocation of `work` fail once, each in a new run. Each run of the test
// begins with another allocation.
Injected inject(const RunConfig& config, int64_t stride,
                const std::function<void(TinyRun&)>& before,
                const std::function<void(TinyRun&)>& work) {
  TinyRun undisturbed(config);
  before(undisturbed);
  const int64_t first = sim::num_allocations();
  work(undisturbed);
  Injected found{.allocations = sim::num_allocations() - first};
  for (int64_t i = 1 + first_allocation(stride); i <= found.allocations; i += stride) {
    TinyRun run(config);
    before(run);
    const size_t live = sim::live_bytes(0);
    sim::fail_allocation(sim::num_allocations() + i);
    try {
      work(run);
      found.recovered += run.parts.recovery->num_failures() > 0 ? 1 : 0;
      found.worst = std::max(found.worst, relative(run.weights(), undisturbed.weights()));
      run.parts.recovery->reserve().fill();  // as the next update would
      EXPECT_EQ(sim::live_bytes(0), live) << "bytes left by allocation " << i;
    } catch (const std::exception& error) {
      const std::string text = error.what();
      const std::string which = " (TANREN_FIRST_ALLOCATION=" + std::to_string(i - 1) + ")";
      ++found.errors[text.substr(0, text.find('\n')) + which];
    }
    sim::fail_allocation(0);
    ++found.tried;
  }
  return found;
}

void expect_recovered(const char* what, const Injected& found) {
  std::printf("%s: %lld of %lld allocations failed once, %lld recovered, weights within %.1e\n",
              what, static_cast<long long>(found.tried), static_cast<long long>(found.allocations),
              static_cast<long long>(found.recovered), found.worst);
  for (const auto& [line, count] : found.errors) ADD_FAILURE() << count << " × " << line;
  EXPECT_LT(found.worst, 1e-10);
  EXPECT_GT(found.recovered, 0);
}

TEST_F(DeviceShortage, in_any_allocation_of_a_step_is_recovered) {
  for (const auto& [kind, stride] : {std::pair{"mlp", 1}, {"gpt2", 7}}) {
    auto config = block_config(kind, "fp64");
    config.clip.norm = 0.1;
    expect_recovered(kind, inject(
                               config, stride, [](TinyRun& run) { run.step(); },
                               [](TinyRun& run) { run.step(); }));
  }
}

// The levels have copies of the weights or not, and a loss scale that one overflow lowers.
TEST_F(DeviceShortage, at_a_level_in_any_allocation_of_a_step_is_recovered) {
  for (const char* words : {"O1 fp16", "O2 bf16", "O2 fp16", "O3 bf16"}) {
    auto config = block_config("mlp", words);
    config.memory.recovery = "same_split";  // other splits sum in another order
    config.clip.norm = 0.1;
    expect_recovered(words, inject(
                                config, allocation_stride(3), [](TinyRun& run) { run.step(); },
                                [](TinyRun& run) { run.step(); }));
  }
}

// Everything outside of microsteps must succeed: the rest of an update, an evaluation and a
// checkpoint.
TEST_F(DeviceShortage, in_any_allocation_of_a_skip_an_evaluation_or_a_save_is_recovered) {
  for (const auto& [kind, stride] : {std::pair{"mlp", 5}, {"gpt2", 23}}) {
    auto config = block_config(kind, "fp16");
    config.guard.nan_loss = "skip";
    config.memory.recovery = "same_split";
    config.average.kind = "ema";
    config.clip.norm = 0.1;
    config.clip.value = 0.01;
    config.data.train.samples = 16;
    const auto prepared = [](TinyRun& run) {
      run.parts.plan.evaluate.batch = 16;
      run.step();
      return events_of([&] { return run.loader->next(); });
    };
    std::optional<Events> events;
    double expected = 0;
    const auto found = inject(
        config, allocation_stride(stride), [&](TinyRun& run) { events = prepared(run); },
        [&](TinyRun& run) {
          const TemporaryFolder folder;
          const double loss = go_through(run, *events, folder.path());
          if (expected == 0) expected = loss;
          EXPECT_NEAR(loss, expected, 1e-3);
          expect_stored(run.state, folder.path());
        });
    expect_recovered((std::string(kind) + ", overflow, skip, update, evaluation, save").c_str(),
                     found);
  }
}

TEST_F(DeviceShortage, that_stays_ends_the_update_with_the_line_of_a_memory_error) {
  TinyRun run(block_config("mlp", "fp32"));
  run.step();
  run.parts.recovery->reserve().release();
  const GlobalBatch batch = run.loader->next();
  sim::set_limit(0, sim::live_bytes(0));
  const std::string error = error_of<MemoryError>([&] { run.step(batch); });
  sim::set_limit(0, size_t{1} << 30);
  TANREN_EXPECT_CONTAINS(error, "raise memory.limit");
  run.step(batch);
}

// With `release_cache = "pressure"` memory counts as scarce only if the device has no more, and the
// allocator keeps none either.
TEST_F(DeviceShortage, is_not_seen_in_what_the_allocator_keeps) {
  const at::Device device(test_device());
  sim::set_limit(0, size_t{64} << 20);
  const auto bytes = at::TensorOptions(at::kByte).device(device);
  at::empty({int64_t{63} << 20}, bytes);
  CacheRelease pressure(ReleaseCache::pressure, device);
  EXPECT_FALSE(pressure.after_step());
  const at::Tensor held = at::empty({int64_t{63} << 20}, bytes);
  CacheRelease other(ReleaseCache::pressure, device);
  EXPECT_TRUE(other.after_step());
  sim::set_limit(0, size_t{1} << 30);
}

}  // namespace
}  // namespace tanren::testing
