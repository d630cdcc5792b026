// Stages with a device each, or taking turns on one, train as one device without stages and as the
// CPU. Messages go between threads, or work as NCCL's.
#include "tests/stages/staged_models.h"
#include "tests/support/accelerator/accelerator.h"
#include "tests/support/accelerator/collectives.h"
#include "tests/support/loop_run.h"

#include "tanren/comm/c10d_communicator.h"
#include "tanren/comm/with_parts.h"
#include "tanren/config/device_name.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace tanren::testing {
namespace {

struct StageDevices {
  const char* engine;  // threads, or sim: collectives and messages as NCCL's
  int stages, replicas, devices;
  PipelineSchedule schedule;
};
void PrintTo(const StageDevices& how, std::ostream* out) {
  *out << how.engine << ", " << how.stages << " stages, " << how.replicas << " replicas, "
       << how.devices << " devices, "
       << (how.schedule == PipelineSchedule::gpipe ? "gpipe" : "1f1b");
}

// Runs all ranks of a mesh over one group of collectives and its subgroups.
OnRanks over_collectives(int stages, int replicas, int devices) {
  return [=](const auto& each) {
    using Part = std::shared_ptr<Communicator>;
    const auto ranks = sim::RankGroup::of(stages * replicas);
    const std::string kind = read_device_name(test_device())->kind;
    const auto communicator_of = [&](int rank) {
      C10dOptions options{.name = "sim",
                          .in_place = true,
                          .device = at::Device(device_name(kind, rank % devices)),
                          .in_groups = true};
      options.split = [ranks](const C10dPart& part) {
        return C10dBackend{ranks->part(part.name, part.size)->backend(part.rank)};
      };
      return c10d_communicator(ranks->backend(rank), std::move(options));
    };
    run_ranks(stages * replicas, communicator_of, [&](Communicator& world) {
      const Part all(&world, [](Communicator*) {});
      with_parts(world, world.rank() % replicas, [&](const Part& pipeline) {
        with_parts(world, world.rank() / replicas, [&](const Part& data) {
          each(RankAxes{
              .world = RankAxis(all), .data = RankAxis(data), .pipeline = RankAxis(pipeline)});
        });
      });
    });
  };
}

Trained trained_on(const StageDevices& how, StagedRun run, int updates) {
  run.stages = how.stages;
  run.replicas = how.replicas;
  run.devices = how.devices;
  run.schedule = how.schedule;
  if (std::string(how.engine) == "threads") return trained(run, updates);
  return trained(over_collectives(how.stages, how.replicas, how.devices), run, updates);
}

// Trains without stages, with one device for each replica.
Trained whole_on_devices(StagedRun run, int replicas, int updates) {
  run.stages = 1;
  run.replicas = run.devices = replicas;
  return trained(run, updates);
}

Trained whole_on_cpu(StagedRun run, int replicas, int updates) {
  run.config.run.device = "cpu";
  return whole_on_devices(run, replicas, updates);
}

// The reference for the stages, by model name and number of replicas. Each reference is trained
// only once.
const Trained& once(const std::string& name, int replicas, const std::function<Trained()>& train) {
  static std::map<std::pair<std::string, int>, Trained> all;
  const std::pair key(name, replicas);
  const auto found = all.find(key);
  return found != all.end() ? found->second : all.emplace(key, train()).first->second;
}

class DeviceStages : public ::testing::TestWithParam<StageDevices> {
 protected:
  void SetUp() override {
    if (!sim::installed()) GTEST_SKIP() << "several devices are simulated ones";
  }
};

// The embeddings of the GPT are in two stages.
TEST_P(DeviceStages, of_a_gpt_train_as_one_device_and_as_the_cpu) {
  const StageDevices& how = GetParam();
  const TokenData data(38);
  StagedRun run{.config = ranks_config("fp64"), .data = data};
  run.config.batch.microbatch = 4 / how.replicas;
  const Trained staged = trained_on(how, run, 4);
  const int replicas = how.replicas;
  const auto& whole = once("gpt", replicas, [&] { return whole_on_devices(run, replicas, 4); });
  const auto& cpu = once("gpt, cpu", replicas, [&] { return whole_on_cpu(run, replicas, 4); });
  expect_same(staged, whole, 1e-10);
  expect_same(staged, cpu, 1e-10);
}

TEST_P(DeviceStages, of_a_resnet_train_bitwise_as_one_device_and_as_the_cpu) {
  const StageDevices& how = GetParam();
  for (const char* mode : {"fp32", "fp64"}) {
    SCOPED_TRACE(mode);
    const StagedModel model("resnet", mode);
    StagedRun run = model.run(how.replicas);
    run.config.model.memory_format = "contiguous";  // the CPU alone would choose channels_last
    const Trained staged = trained_on(how, run, 2);
    const int replicas = how.replicas;
    const std::string name = std::string("resnet ") + mode;
    const auto& whole = once(name, replicas, [&] { return whole_on_devices(run, replicas, 2); });
    expect_same(staged, whole, kBitwise);
    if (std::string(mode) != "fp64") continue;
    const auto& cpu =
        once(name + ", cpu", replicas, [&] { return whole_on_cpu(run, replicas, 2); });
    expect_same(staged, cpu, 1e-10);
  }
}

// Only the norm is summed in another order on a device.
TEST_P(DeviceStages, of_an_mlp_have_the_cpus_losses_and_weights_to_the_last_bit) {
  const StageDevices& how = GetParam();
  const StagedModel model("mlp", "fp32");
  StagedRun run = model.run(how.replicas);
  run.config.clip = {};
  const Trained staged = trained_on(how, run, 3);
  const auto& cpu =
      once("mlp, cpu", how.replicas, [&] { return whole_on_cpu(run, how.replicas, 3); });
  EXPECT_EQ(staged.losses, cpu.losses);
  expect_same_tensors(staged.tensors, cpu.tensors, kBitwise);
}

// With the larger scale gradients overflow, so that updates are skipped and the scale is halved.
TEST_P(DeviceStages, in_fp16_skip_and_scale_bitwise_as_one_device) {
  const StageDevices& how = GetParam();
  const StagedModel model("bert", "fp16");
  StagedRun run = model.run(how.replicas);
  for (const int64_t scale : {int64_t{1} << 10, int64_t{1} << 26}) {
    SCOPED_TRACE("scale " + std::to_string(scale));
    run.config.precision.initial_scale = std::to_string(scale);
    const auto& whole = once("bert " + std::to_string(scale), how.replicas,
                             [&] { return whole_on_devices(run, how.replicas, 3); });
    ASSERT_EQ(whole.actions.front(), scale > 1024 ? Action::skip : Action::apply);
    expect_same(trained_on(how, run, 3), whole, kBitwise);
  }
}

constexpr auto kGpipe = PipelineSchedule::gpipe, kOneFOneB = PipelineSchedule::one_f_one_b;
INSTANTIATE_TEST_SUITE_P(Engines, DeviceStages,
                         ::testing::Values(StageDevices{"threads", 2, 1, 2, kGpipe},
                                           StageDevices{"threads", 2, 1, 2, kOneFOneB},
                                           StageDevices{"threads", 4, 1, 4, kOneFOneB},
                                           StageDevices{"threads", 2, 2, 4, kOneFOneB},
                                           StageDevices{"threads", 4, 1, 2, kGpipe},
                                           StageDevices{"threads", 2, 1, 1, kOneFOneB},
                                           StageDevices{"sim", 2, 1, 2, kGpipe},
                                           StageDevices{"sim", 2, 1, 2, kOneFOneB},
                                           StageDevices{"sim", 4, 1, 4, kGpipe},
                                           StageDevices{"sim", 4, 1, 4, kOneFOneB},
                                           StageDevices{"sim", 2, 2, 4, kOneFOneB}));

// Runs the whole program with stages on devices of their own, evaluations, checkpoints, and a run
// that is resumed in another layout.
TEST_F(Loop, of_stages_on_devices_writes_the_log_of_one_rank) {
  if (!sim::installed()) GTEST_SKIP() << "several devices are simulated ones";
  const std::string kind = read_device_name(test_device())->kind;
  const auto config_of = [&](int64_t stages, int64_t replicas) {
    auto config = looped_config(1);
    config.run.device = kind;
    config.batch.microbatch = 3;
    if (stages * replicas > 1) config.parallel.ranks = "threads";
    config.parallel.pipeline = stages;
    config.parallel.replicas = replicas;
    return config;
  };
  go(config_of(1, 1), "1");
  for (const int64_t stages : {2, 3}) {
    const std::string folder = std::to_string(stages);
    go(config_of(stages, 1), folder);
    EXPECT_EQ(std::ssize(plan_.parallel.devices), stages);
    EXPECT_TRUE(ranks_.at(1).find(device_name(kind, 1)) != std::string::npos) << ranks_.at(1);
    expect_same("1", folder);
  }
  auto cut = config_of(2, 2);
  cut.run.stop_after = 5;
  go(cut, "cut");
  go(config_of(3, 1), "cut");
  expect_same("1", "cut");
}

}  // namespace
}  // namespace tanren::testing
