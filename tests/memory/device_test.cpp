// Memory predictions and recovery on an accelerator, checked against its allocator and its driver.
// All of it runs on a CUDA device (label gpu), the limit on the simulated accelerator, too.
#include "tests/support/accelerator/accelerator.h"
#include "tests/support/tiny_run.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/forecast/fit_memory.h"
#include "tanren/forecast/predict.h"
#include "tanren/memory/gauge.h"
#include "tanren/monitor/nvml.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdio>

namespace tanren::testing {
namespace {

constexpr double kMiB = 1 << 20;

class DeviceMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device() == "cpu")
      GTEST_SKIP() << "the CPU has no such allocator; set TANREN_TEST_DEVICE";
  }
};
using DeviceLimit = DeviceMemory;

RunConfig wide_config(const std::string& kind, const std::string& mode) {
  auto config = tiny_config(kind);
  config.precision.mode = mode;
  config.batch.global_batch = "16";
  if (kind == "mlp") {
    config.model.hidden = {2048, 2048};
    config.data.train.fields = {"inputs: float[2048] in [-1, 1]", "labels: int[] in [0, 4]"};
  } else if (kind == "gpt2" || kind == "bert") {
    config.model.num_layers = 4;
    config.model.num_heads = 4;
    config.model.hidden_size = 256;
    config.model.vocab_size = 1000;
    config.model.dropout = 0.0;  // dropout has kernels there that the prediction lacks
    config.data.train.fields = {"inputs: int[128] in [0, 999]", kind == "gpt2"
                                                                    ? "labels: int[128] in [0, 999]"
                                                                    : "labels: int[] in [0, 4]"};
  } else {
    config.model.channels = {32, 64};
    config.data.train.fields = {"inputs: float[3,64,64] in [-1, 1]", "labels: int[] in [0, 4]"};
  }
  return config;
}

MemoryPrediction predicted_for(const TinyRun& run, const RunConfig& config) {
  const auto make = [&] { return build_task(config, ModelRegistry(), *run.dataset); };
  return StepPredictor(make, *run.dataset).step(run.parts.plan);
}

TEST_F(DeviceLimit, in_bytes_is_what_the_devices_allocator_obeys) {
  auto config = wide_config("mlp", "fp32");
  config.memory.limit = "1GiB";
  TinyRun run(config);
  EXPECT_GT(run.parts.plan.memory.limit_share, 0);
  run.step();
  const auto bytes = at::TensorOptions(at::kByte).device(run.parts.device);
  EXPECT_THROW(at::empty({int64_t{1} << 30}, bytes), c10::OutOfMemoryError);
  EXPECT_NO_THROW(at::empty({int64_t{256} << 20}, bytes));
}

// Activations are most of what it needs.
RunConfig many_samples() {
  auto config = tiny_config("mlp");
  config.precision.mode = "fp32";
  config.model.hidden = {256, 256};
  config.data.train.fields = {"inputs: float[256] in [-1, 1]", "labels: int[] in [0, 4]"};
  config.data.train.samples = 8192;
  config.batch.global_batch = "4096";
  return config;
}

Fitted fit_on_device(const RunConfig& config, const Dataset& data) {
  ModelProfile profile;
  profile_parameters(*build_task(config, ModelRegistry(), data).module, profile);
  profile.train_samples = data.size();
  profile.metrics = {"*"};
  Machine machine;
  probe_accelerators(machine, config.run.device, test_accelerators());
  const FitInput input{
      .config = config,
      .plan = [&](const RunConfig& other) { return make_plan(other, machine, profile); },
      .make_task = [&](const RunConfig& other) { return build_task(other, ModelRegistry(), data); },
      .dataset = &data};
  return fit_memory(input);
}

TEST_F(DeviceLimit, is_what_the_plan_fits_the_microbatch_to) {
  auto config = many_samples();
  const auto data = open_dataset(config.data.train, "data.train");
  const Fitted free = fit_on_device(config, *data);
  EXPECT_EQ(free.plan.batch.microbatch, 4096) << "the device has room for all";
  EXPECT_GT(free.plan.memory.limit_bytes, 0);
  config.memory.limit = std::to_string(free.prediction->peak_bytes * 3 / 4);
  config.asked = {"memory.limit"};
  const Fitted fitted = fit_on_device(config, *data);
  EXPECT_LT(fitted.plan.batch.microbatch, 4096);
  TinyRun run(fitted.config);
  run.steps(2);
  EXPECT_EQ(run.parts.recovery->num_failures(), 0);
}

// The prediction may be too high; nobody asked for a limit.
TEST_F(DeviceLimit, that_was_not_asked_for_refuses_nothing) {
  if (!test_accelerators().limit || test_device().rfind("sim", 0) != 0) {
    GTEST_SKIP() << "only the simulated device has as little memory as one likes";
  }
  auto config = many_samples();
  config.batch.microbatch = 4096;
  config.memory.recompute = {};
  config.asked = {"batch.microbatch", "memory.recompute"};
  const auto data = open_dataset(config.data.train, "data.train");
  const size_t before = sim::memory_limits()[0];
  sim::set_limit(0, size_t{4} << 20);
  const Fitted fitted = fit_on_device(config, *data);
  sim::set_limit(0, before);
  ASSERT_EQ(fitted.remarks.size(), 1u);
  TANREN_EXPECT_CONTAINS(fitted.remarks[0], "a step may not fit the device");
}

TEST_F(DeviceLimit, below_one_sample_is_refused_before_the_first_step) {
  auto config = many_samples();
  const auto data = open_dataset(config.data.train, "data.train");
  config.memory.limit = "1MiB";
  config.asked = {"memory.limit"};
  const std::string error = error_of<ConfigError>([&] { fit_on_device(config, *data); });
  TANREN_EXPECT_CONTAINS(error, "memory.limit 1.0 MiB is less than a step needs");
}

// The prediction runs the CPU's operators, from which the device's differ; hence the tolerance.
TEST_F(DeviceMemory, a_predicted_peak_is_near_what_the_devices_allocator_counts) {
  constexpr double kTolerance = 0.25;
  for (const char* kind : {"mlp", "gpt2", "bert", "convnet"}) {
    for (const char* mode : {"fp32", "bf16"}) {
      const auto config = wide_config(kind, mode);
      TinyRun run(config);
      MemoryGauge gauge(run.parts.device);
      const int64_t others = gauge.live() - predicted_for(run, config).before_bytes;
      run.step();
      const GlobalBatch batch = run.loader->next();
      gauge.restart();
      run.step(batch);
      const auto measured = static_cast<double>(gauge.peak() - std::max<int64_t>(others, 0));
      const auto predicted = static_cast<double>(predicted_for(run, config).peak_bytes);
      std::printf("%-8s %s predicted %8.2f MiB, measured %8.2f MiB, %+.2f %%\n", kind, mode,
                  predicted / kMiB, measured / kMiB, 100 * (predicted / measured - 1));
      EXPECT_NEAR(predicted / measured, 1, kTolerance) << kind << " " << mode;
    }
  }
}

// Peak of a second step with microbatches of `samples`, in bytes above what is held between steps.
int64_t taken_by_step(RunConfig config, int64_t samples) {
  config.batch.microbatch = samples;
  TinyRun run(config);
  run.step();
  MemoryGauge gauge(run.parts.device);
  const int64_t before = gauge.live();
  gauge.restart();
  run.step();
  return gauge.peak() - before;
}

TEST_F(DeviceMemory, twenty_real_shortages_are_recovered_from_and_leave_no_byte_behind) {
  auto config = wide_config("gpt2", "fp64");
  config.batch.global_batch = "64";
  const int64_t whole = taken_by_step(config, 64), one = taken_by_step(config, 1);
  TinyRun run(config), undisturbed(config);
  run.step();
  undisturbed.step();
  MemoryGauge gauge(run.parts.device);
  gauge.release_cache();
  // Stands for memory of other processes: neither the whole batch nor the cache fits beside it.
  const int64_t room = (whole + 3 * one) / 4 + (int64_t{64} << 20);
  at::Tensor ballast = at::empty({gauge.limit() - gauge.live() - room},
                                 at::TensorOptions(at::kByte).device(run.parts.device));
  const int64_t before = gauge.live();
  int64_t recovered = 0;
  for (int i = 0; i < 20; ++i) {
    run.parts.recovery = std::make_shared<Recovery>(run.parts.plan.memory, run.parts.device);
    run.step();
    recovered += run.parts.recovery->num_failures() > 0 ? 1 : 0;
    gauge.release_cache();
    EXPECT_EQ(gauge.live(), before) << i;
  }
  EXPECT_EQ(recovered, 20);
  ballast.reset();
  for (int i = 0; i < 20; ++i) undisturbed.step();
  EXPECT_LT(relative(run.weights(), undisturbed.weights()), 1e-10);
}

TEST_F(DeviceMemory, tensors_cache_and_context_are_what_the_driver_counts) {
  const auto devices = open_nvml();
  if (!devices.reader) GTEST_SKIP() << devices.why_none;
  TinyRun run(wide_config("gpt2", "fp32"));
  run.step();
  const MemoryGauge gauge(run.parts.device);
  const auto states = devices.reader->read();
  if (states.size() != 1) GTEST_SKIP() << "several devices: which one is cuda:0 is not known here";
  const auto sum = static_cast<double>(gauge.live() + gauge.cached() + gauge.context());
  std::printf("tensors %.1f MiB, cached %.1f MiB, context and others %.1f MiB\n",
              static_cast<double>(gauge.live()) / kMiB, static_cast<double>(gauge.cached()) / kMiB,
              static_cast<double>(gauge.context()) / kMiB);
  ASSERT_TRUE(states[0].used_bytes);
  EXPECT_NEAR(sum / kMiB, static_cast<double>(*states[0].used_bytes) / kMiB, 64);
  const auto& processes = states[0].processes;
  if (processes.size() != 1 || !processes[0].bytes) return;  // not alone, or bytes unknown
  std::printf("process %lld (here %lld): %.1f MiB\n", static_cast<long long>(processes[0].pid),
              static_cast<long long>(::getpid()), static_cast<double>(*processes[0].bytes) / kMiB);
  EXPECT_NEAR(sum / kMiB, static_cast<double>(*processes[0].bytes) / kMiB, 64);
}

}  // namespace
}  // namespace tanren::testing
