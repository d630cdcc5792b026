// A device that runs out of memory at any allocation of a step costs only time. The simulated
// device fails a chosen allocation.
#include "tests/support/accelerator/accelerator.h"
#include "tests/support/block_config.h"

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
  void TearDown() override { sim::fail_allocation(0); }
};

struct Injected {
  int64_t allocations = 0, tried = 0, recovered = 0;
  double worst = 0;
  std::map<std::string, int64_t> errors;  // their first lines
};

// Lets every `stride`-th allocation of `work` fail once, each in a new run.
Injected inject(const RunConfig& config, int64_t stride,
                const std::function<void(TinyRun&)>& before,
                const std::function<void(TinyRun&)>& work) {
  TinyRun undisturbed(config);
  before(undisturbed);
  const int64_t first = sim::num_allocations();
  work(undisturbed);
  Injected found{.allocations = sim::num_allocations() - first};
  for (int64_t i = 1; i <= found.allocations; i += stride) {
    TinyRun run(config);
    before(run);
    const size_t live = sim::live_bytes(0);
    sim::fail_allocation(sim::num_allocations() + i);
    try {
      work(run);
      found.recovered += run.parts.recovery->num_failures() > 0 ? 1 : 0;
      found.worst = std::max(found.worst, relative(run.weights(), undisturbed.weights()));
      EXPECT_EQ(sim::live_bytes(0), live) << "bytes left by allocation " << i;
    } catch (const std::exception& error) {
      const std::string text = error.what();
      ++found.errors[text.substr(0, text.find('\n'))];
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
    if (stride > 1) config.model.dropout = 0;  // masks are most of the kernels
    expect_recovered(kind, inject(
                               config, stride, [](TinyRun& run) { run.step(); },
                               [](TinyRun& run) { run.step(); }));
  }
}

}  // namespace
}  // namespace tanren::testing
