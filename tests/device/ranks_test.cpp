// Ranks with a device each, or taking turns on one, equal one rank. The engines are sums over
// threads and collectives that work as NCCL's. Each rank's host waits once a step.
#include "tests/support/accelerator/accelerator.h"
#include "tests/support/accelerator/collectives.h"
#include "tests/support/loop_run.h"
#include "tests/support/rank_run.h"
#include "tests/support/token_data.h"

#include "tanren/comm/c10d_communicator.h"
#include "tanren/config/device_name.h"

#include <gtest/gtest.h>

#include <barrier>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace tanren::testing {
namespace {

std::string device_kind() { return read_device_name(test_device())->kind; }

struct Group {
  const char* engine;  // threads, or sim: collectives as NCCL's
  int world_size, devices;
  int64_t zero, accumulation;
};
void PrintTo(const Group& group, std::ostream* out) {
  *out << group.engine << ", " << group.world_size << " ranks on " << group.devices
       << " devices, zero " << group.zero << ", accumulation " << group.accumulation;
}

void on_devices(const Group& group, const std::function<void(Communicator&)>& work) {
  if (std::string(group.engine) == "threads" || group.world_size == 1) {
    return on_engine("threads", group.world_size, work);
  }
  const auto ranks = sim::RankGroup::of(group.world_size);
  run_ranks(
      group.world_size,
      [&](int rank) {
        const at::Device device(device_name(device_kind(), rank));
        return c10d_communicator(
            ranks->backend(rank),
            {.name = "sim", .in_place = group.world_size == 2, .device = device});
      },
      work);
}

struct Outcome {
  at::Tensor weights;
  double loss = 0;
  double waits = 0;  // per rank and step
};

std::vector<Outcome> outcomes(RunConfig config, const Group& group, const Dataset& data) {
  config.run.device = device_kind();
  config.parallel.overlap = group.world_size <= group.devices;
  config.parallel.zero = group.world_size == 1 ? 0 : group.zero;
  const int64_t share = 12 / group.world_size;
  if (group.world_size > 1 && config.parallel.buffers != "synchronised") {
    config.batch.microbatch = (share + group.accumulation - 1) / group.accumulation;
  }
  std::vector<Outcome> all(static_cast<size_t>(group.world_size));
  std::barrier together(group.world_size);
  const auto open_windows = std::make_shared<std::atomic<int>>(0);
  constexpr int kFirst = 2, kUpdates = 5;
  on_devices(group, [&](Communicator& comm) {
    RankRun run(config, data, comm, {}, open_windows, group.devices);
    Outcome& outcome = all[static_cast<size_t>(comm.rank())];
    int64_t before = 0;
    for (int i = 0; i < kUpdates; ++i) {
      if (i == kFirst) {  // the first updates agree on terms and buckets
        together.arrive_and_wait();
        if (comm.rank() == 0) sim::take_waits();
        before = sim::counts().waits();
        together.arrive_and_wait();
      }
      outcome.loss = run.step().objectives[0].loss;
    }
    together.arrive_and_wait();
    const auto waits = static_cast<double>(sim::counts().waits() - before);
    outcome.waits = waits / group.world_size / (kUpdates - kFirst);
    together.arrive_and_wait();
    outcome.weights = run.weights();
  });
  return all;
}

void expect_one_rank(const RunConfig& config, const Group& group, const Dataset& data) {
  const auto ranks = outcomes(config, group, data);
  std::string callers;
  for (const auto& [caller, count] : sim::take_waits()) {
    callers += "  " + caller + " × " + std::to_string(count);
  }
  static std::map<std::string, Outcome> ones;  // by model, each trained on one rank only once
  if (ones.count(config.model.kind) == 0) {
    ones[config.model.kind] = outcomes(config, {"threads", 1, 1, 0, 1}, data)[0];
  }
  const Outcome& one = ones[config.model.kind];
  for (const auto& rank : ranks) {
    EXPECT_TRUE(at::equal(rank.weights, ranks[0].weights)) << "ranks differ";
    EXPECT_EQ(rank.loss, ranks[0].loss);
    EXPECT_EQ(rank.waits, 1) << callers;
  }
  EXPECT_LT(relative(ranks[0].weights, one.weights), 1e-10);
}

class DeviceRanks : public ::testing::TestWithParam<Group> {
 protected:
  void SetUp() override {
    if (!sim::installed()) GTEST_SKIP() << "several devices are simulated ones";
  }
};

TEST_P(DeviceRanks, are_one_rank_and_wait_once_a_step) {
  const TokenData data(38);
  expect_one_rank(ranks_config("fp64"), GetParam(), data);
}

INSTANTIATE_TEST_SUITE_P(
    Engines, DeviceRanks,
    ::testing::Values(Group{"threads", 2, 2, 0, 1}, Group{"threads", 2, 2, 1, 3},
                      Group{"threads", 2, 2, 2, 1}, Group{"threads", 3, 3, 0, 3},
                      Group{"threads", 3, 3, 1, 1}, Group{"threads", 3, 3, 2, 3},
                      Group{"threads", 4, 2, 0, 1}, Group{"threads", 4, 2, 2, 3},
                      Group{"sim", 2, 2, 0, 1}, Group{"sim", 2, 2, 1, 3}, Group{"sim", 2, 2, 2, 1},
                      Group{"sim", 3, 3, 0, 3}, Group{"sim", 3, 3, 1, 1},
                      Group{"sim", 3, 3, 2, 3}));

// Work after the wait runs after the copy. The copy runs after the work that came before its start.
TEST(DeviceWires, messages_wait_for_the_streams_of_both_ranks_and_these_for_them) {
  if (!sim::installed()) GTEST_SKIP() << "several devices are simulated ones";
  for (const int devices : {2, 1}) {
    on_ranks(2, [&](Communicator& comm) {
      const at::Device own(device_name(device_kind(), comm.rank() % devices));
      const int other = 1 - comm.rank();
      const at::Tensor theirs = at::empty({1000}, at::TensorOptions(own).dtype(at::kDouble));
      for (int round = 0; round < 3; ++round) {
        const at::Tensor mine = at::full({1000}, comm.rank() + round, theirs.options()).mul_(2);
        theirs.zero_();
        const auto receive = comm.start_receive(theirs, other);
        const auto send = comm.start_send(mine, other);
        send->wait();
        mine.zero_();
        receive->wait();
        EXPECT_EQ(theirs.sum().item<double>(), 2000.0 * (other + round));
      }
    });
  }
}

// Replicas that share a device cannot run in lockstep.
class RanksApart : public DeviceRanks {};
INSTANTIATE_TEST_SUITE_P(Engines, RanksApart,
                         ::testing::Values(Group{"threads", 2, 2, 0, 1},
                                           Group{"threads", 3, 3, 2, 1}, Group{"sim", 2, 2, 1, 1},
                                           Group{"sim", 3, 3, 0, 1}));

TEST_P(RanksApart, with_synchronised_batch_norm_are_one_rank) {
  auto config = tiny_config("convnet");
  config.model.norm = "batch";
  config.model.dropout = 0.2;
  config.data.train.samples = 38;
  config.batch.global_batch = "12";
  config.parallel.buffers = "synchronised";
  const auto data = open_dataset(config.data.train, "data.train");
  expect_one_rank(config, GetParam(), *data);
}

// Runs the whole program with replicas on devices of their own, evaluation and checkpoints.
TEST_F(Loop, of_replicas_on_devices_writes_the_log_of_one_rank) {
  if (!sim::installed()) GTEST_SKIP() << "several devices are simulated ones";
  for (const int64_t replicas : {1, 2, 3, 4}) {
    auto config = looped_config(replicas);
    config.run.device = device_kind();
    if (replicas == 4) config.parallel.devices = {0, 1};  // take turns
    if (replicas < 4 && replicas > 1) {
      for (int64_t i = 0; i < replicas; ++i) config.parallel.devices.push_back(i);
    }
    const std::string folder = std::to_string(replicas);
    EXPECT_EQ(go(config, folder).loop.ending, Ending::finished) << replicas;
    EXPECT_EQ(plan_.parallel.world_size, replicas);
    if (replicas > 1) expect_same("1", folder);
  }
}

}  // namespace
}  // namespace tanren::testing
