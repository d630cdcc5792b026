// Memory predictions and recovery on an accelerator, checked against its allocator and its driver.
// All of it runs on a CUDA device (label gpu), limit and peaks on the simulated accelerator, too.
#include "tests/support/accelerator/accelerator.h"
#include "tests/support/tiny_run.h"

#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/testing.h"
#include "tanren/forecast/fit_memory.h"
#include "tanren/forecast/predict.h"
#include "tanren/memory/gauge.h"
#include "tanren/monitor/nvml.h"

#include <fmt/format.h>
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
using DevicePeak = DeviceMemory;

bool is_simulated() { return test_device().starts_with("sim"); }

// The simulated device computes on the CPU: it gets a small fraction of the work.
RunConfig wide_config(const std::string& kind, const std::string& mode) {
  const bool small = is_simulated();
  auto config = tiny_config(kind);
  config.precision.mode = mode;
  config.batch.global_batch = small ? "8" : "16";
  if (kind == "mlp") {
    const int64_t width = small ? 512 : 2048;
    config.model.hidden = {width, width};
    config.data.train.fields = {fmt::format("inputs: float[{}] in [-1, 1]", width),
                                "labels: int[] in [0, 4]"};
  } else if (kind == "gpt2" || kind == "bert") {
    config.model.num_layers = small ? 2 : 4;
    config.model.num_heads = 4;
    config.model.hidden_size = small ? 128 : 256;
    config.model.vocab_size = 1000;
    config.model.dropout = 0.0;
    const int length = small ? 64 : 128;
    config.data.train.fields = {fmt::format("inputs: int[{}] in [0, 999]", length),
                                kind == "gpt2" ? fmt::format("labels: int[{}] in [0, 999]", length)
                                               : "labels: int[] in [0, 4]"};
  } else {
    const int side = small ? 32 : 64;
    if (!small) config.batch.global_batch = "64";  // cuDNN's workspaces are not predicted: 30 MiB
    config.model.channels = {32, 64};
    config.data.train.fields = {fmt::format("inputs: float[3,{},{}] in [-1, 1]", side, side),
                                "labels: int[] in [0, 4]"};
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
  const int64_t width = is_simulated() ? 256 : 2048;  // CUDA's workspaces are 64 MiB
  config.model.hidden = {width, width};
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

// The prediction may be too high, so only a limit that was asked for refuses.
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

// The peak of a second step, without what the process held before, and without the reserve, which
// the plan takes from the limit. Libraries have made their workspaces before.
int64_t peak_of_step(const RunConfig& config) {
  MemoryGauge gauge{at::Device(config.run.device)};
  const int64_t before = gauge.live();
  TinyRun run(config);
  run.step();
  const GlobalBatch batch = run.loader->next();
  gauge.restart();
  run.step(batch);
  return gauge.peak() - before - run.parts.plan.memory.reserve_bytes;
}

int64_t workspaces_in(const MemoryPrediction& prediction) {
  return prediction.at_peak.at(static_cast<size_t>(MemoryKind::workspaces));
}

void expect_predicted(const std::string& what, const RunConfig& config, double tolerance) {
  const auto measured = static_cast<double>(peak_of_step(config));
  const MemoryPrediction prediction = predicted_for(TinyRun(config), config);
  const auto predicted = static_cast<double>(prediction.peak_bytes - workspaces_in(prediction));
  std::printf("%-16s predicted %8.2f MiB, measured %8.2f MiB, %+.2f %%\n", what.c_str(),
              predicted / kMiB, measured / kMiB, 100 * (predicted / measured - 1));
  EXPECT_NEAR(predicted / measured, 1, tolerance) << what;
}

// CUDA's convolutions take workspaces that no one can tell before they run.
TEST_F(DevicePeak, as_predicted_is_what_the_devices_allocator_counts) {
  // The simulated device runs the CPU's convolutions, whose scratch memory in bf16 differs: 5 %.
  const double tolerance = is_simulated() ? 0.06 : 0.25;
  TinyRun(wide_config("mlp", "fp32")).step();  // makes the workspaces
  for (const char* kind : {"mlp", "gpt2", "bert", "convnet"}) {
    for (const char* mode : {"fp32", "bf16"}) {
      expect_predicted(kind + std::string(" ") + mode, wide_config(kind, mode), tolerance);
    }
  }
}

// Dropout, which draws and keeps masks, and attention by its parts.
TEST_F(DevicePeak, as_predicted_has_the_masks_of_dropout) {
  const double tolerance = is_simulated() ? 0.03 : 0.25;
  TinyRun(wide_config("mlp", "fp32")).step();
  for (const char* kind : {"gpt2", "bert"}) {
    for (const char* mode : {"fp32", "bf16"}) {
      auto config = wide_config(kind, mode);
      config.model.dropout = 0.1;
      expect_predicted(fmt::format("{} {} dropout", kind, mode), config, tolerance);
    }
  }
}

TEST_F(DevicePeak, has_the_workspaces_that_were_predicted) {
  const MemoryGauge gauge{at::Device(test_device())};
  int64_t predicted = 0;
  {
    const auto config = wide_config("mlp", "fp32");
    TinyRun run(config);
    run.step();
    predicted = workspaces_in(predicted_for(run, config));
    EXPECT_EQ(predicted, 2 * run.parts.plan.device.workspace_bytes);
  }
  const double held = static_cast<double>(gauge.live()) / kMiB;  // the run and its tensors are gone
  EXPECT_NEAR(static_cast<double>(predicted) / kMiB, held, 2);
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
