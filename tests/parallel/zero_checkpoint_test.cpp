// Checkpoints of ranks with sharded optimizer state: one file per rank, complete or invisible, and
// loadable on any other number of ranks.
#include "tests/support/loop_run.h"
#include "tests/support/rank_run.h"
#include "tests/support/token_data.h"

#include "tanren/base/error.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/interop/torch_optimizer.h"
#include "tanren/interop/torch_state.h"
#include "tanren/interop/transfer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;

RunConfig zero_config(int64_t replicas, int64_t zero) {
  auto config = looped_config(replicas);
  config.parallel.zero = zero;
  config.parallel.first_bucket_mb = config.parallel.bucket_mb = 2.0 / 1024;
  return config;
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

using ZeroLoop = Loop;

TEST_F(ZeroLoop, moves_from_three_ranks_to_two_to_one_and_back_with_the_log_of_an_undisturbed_run) {
  go(zero_config(1, 0), "whole");
  const std::vector<std::pair<int64_t, int64_t>> stations = {{3, 2}, {2, 1}, {1, 0}};
  for (const auto& [replicas, zero] : stations) {
    auto config = zero_config(replicas, zero);
    config.run.stop_after = 2;
    EXPECT_EQ(go(config, "moved").loop.ending, Ending::stopped);
  }
  EXPECT_EQ(go(zero_config(2, 2), "moved").loop.ending, Ending::finished);
  expect_same("whole", "moved");
}

TEST_F(ZeroLoop, averages_and_convnets_in_another_layout_move_too) {
  const auto config_of = [&](int64_t replicas, int64_t zero, const char* format) {
    auto config = zero_config(replicas, zero);
    config.model = RunConfig().model;
    config.model.kind = "convnet";
    config.model.channels = {4, 8};
    config.model.memory_format = format;
    config.average.kind = "ema";
    return config;
  };
  go(config_of(1, 0, "contiguous"), "whole");
  auto first = config_of(3, 1, "channels_last");
  first.run.stop_after = 4;
  go(first, "moved");
  auto second = config_of(2, 2, "contiguous");
  second.run.stop_after = 3;
  go(second, "moved");
  go(config_of(1, 0, "contiguous"), "moved");
  expect_same("whole", "moved");
}

TEST_F(ZeroLoop, packed_state_moves_between_ranks_and_layouts_and_is_written_whole_for_torch) {
  for (const std::string state : {"8bit", "bf16"}) {
    SCOPED_TRACE(state);
    const auto config_of = [&](int64_t replicas, int64_t zero, const char* format) {
      auto config = zero_config(replicas, zero);
      config.model = RunConfig().model;
      config.model.kind = "convnet";
      config.model.channels = {32, 64};
      config.model.memory_format = format;
      config.precision.mode = "fp32";
      config.optimizer.state = state;
      return config;
    };
    const auto last = [&](const std::string& name) {
      return *latest_checkpoint(folder_.path() / name / "checkpoints");
    };
    const auto kernel = [&](const std::string& name) {
      return read_checkpoint(last(name)).model.tensors.at("stages.1.conv2.weight").clone();
    };
    const std::string whole = "whole" + state, moved = "moved" + state;
    go(config_of(1, 0, "contiguous"), whole);
    auto first = config_of(3, 1, "channels_last");
    first.run.stop_after = 4;
    go(first, moved);
    const at::Tensor start = kernel(moved);
    const auto file = folder_.path() / (state + ".pt");
    write_torch_checkpoint(last(moved), file, Registry().known());
    const auto torch = torch_optimizers_of(read_weights(file), file.string()).at(0);
    int64_t elements = 0;
    for (const auto& [number, kept] : torch.state) {
      for (const char* moment : {"exp_avg", "exp_avg_sq"}) {
        const at::Tensor& tensor = kept.tensors.at(moment);
        EXPECT_EQ(tensor.scalar_type(), at::kFloat);
        EXPECT_GT(tensor.abs().sum().item<double>(), 0);
        elements += tensor.dim() == 4 ? tensor.numel() : 0;
      }
    }
    EXPECT_GT(elements, 2 * 64 * 64 * 9);
    auto second = config_of(2, 2, "contiguous");
    second.run.stop_after = 3;
    go(second, moved);
    go(config_of(1, 0, "channels_last"), moved);
    const at::Tensor end = kernel(whole);
    // The blocks of 256 differ, so the roundings do too.
    EXPECT_LT((kernel(moved) - end).norm().item<double>(),
              0.25 * (end - start).norm().item<double>());
  }
}

TEST_F(ZeroLoop, has_a_file_of_each_rank_in_one_manifest_and_joins_to_what_one_rank_writes) {
  go(zero_config(1, 0), "one");
  go(zero_config(3, 2), "three");
  const auto step = [&](const std::string& name) {
    return *latest_checkpoint(folder_.path() / name / "checkpoints");
  };
  EXPECT_EQ(names_in(step("three")),
            (std::set<std::string>{"COMPLETE", "config.toml", "manifest.json", "model.safetensors",
                                   "optimizer-00000-of-00003.safetensors",
                                   "optimizer-00001-of-00003.safetensors",
                                   "optimizer-00002-of-00003.safetensors", "origin.json",
                                   "plan.txt", "random.safetensors", "state.json"}));
  const Snapshot expected = read_checkpoint(step("one")), shared = read_checkpoint(step("three"));
  EXPECT_TRUE(expected.slices.empty());
  const State joined = StoredState(shared.optimizer, shared.slices).joined();
  ASSERT_EQ(joined.tensors.size(), expected.optimizer.tensors.size());
  int64_t elements = 0, stored = 0;
  for (const auto& [name, tensor] : expected.optimizer.tensors) {
    const at::Tensor& got = joined.tensors.at(name);
    ASSERT_EQ(got.sizes(), tensor.sizes()) << name;
    EXPECT_LT((got - tensor).abs().max().item<double>(), 1e-10) << name;
    elements += tensor.dim() > 0 ? tensor.numel() : 0;
  }
  for (const auto& [name, tensor] : shared.optimizer.tensors) {
    stored += tensor.dim() > 0 ? tensor.numel() : 0;
  }
  EXPECT_EQ(stored, elements) << "some element is stored twice";
  write_torch_checkpoint(step("three"), folder_.path() / "out.pt", Registry().known());
  const auto torch = read_weights(folder_.path() / "out.pt");
  EXPECT_GT(torch.content.tensors.size(), expected.model.tensors.size());
}

TEST_F(ZeroLoop, refuses_a_damaged_or_missing_file_of_a_rank) {
  auto config = zero_config(2, 1);
  config.run.stop_after = 2;
  go(config, "damaged");
  const fs::path step = *latest_checkpoint(folder_.path() / "damaged" / "checkpoints");
  const fs::path file = step / "optimizer-00001-of-00002.safetensors";
  std::string bytes = read_file(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(file, bytes);
  for (const int64_t replicas : {1, 2, 3}) {  // every byte is verified by one of the ranks
    try {
      go(zero_config(replicas, 1), "damaged");
      FAIL() << "it was accepted on " << replicas;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("optimizer-00001-of-00002.safetensors has changed"),
                std::string::npos)
          << error.what();
    }
  }
  fs::remove(file);
  EXPECT_THROW(read_checkpoint(step), CheckpointError);
}

Snapshot snapshot_of(int rank, bool can_be_written) {
  Snapshot snapshot;
  snapshot.parts.optimizer = {.part = rank, .parts = 2};
  snapshot.model.tensors.set("w", at::ones({4, 4}));
  const int64_t begin = 8 * rank;
  snapshot.slices = {
      {"loss.w@" + std::to_string(begin), "loss.w", begin, begin + 8, {4, 4}, {4, 1}}};
  const auto type = can_be_written ? at::kFloat : at::kComplexFloat;
  snapshot.optimizer.tensors.set(snapshot.slices[0].name + ".exp_avg",
                                 at::arange(begin, begin + 8).to(type));
  return snapshot;
}

TEST(ZeroCheckpoint, of_which_one_rank_cannot_write_its_part_is_not_there_and_the_last_one_stays) {
  const TemporaryFolder folder;
  const auto write = [&](int64_t step, bool fails) {
    on_ranks(2, [&](Communicator& comm) {
      const Snapshot snapshot = snapshot_of(comm.rank(), !fails || comm.rank() == 0);
      try {
        write_shared_checkpoint(folder.path(), step, snapshot, 3, {}, comm);
        EXPECT_FALSE(fails);
      } catch (const RunError& error) {
        EXPECT_TRUE(fails) << error.what();
        EXPECT_NE(std::string(error.what()).find("rank 1 cannot write its part of"),
                  std::string::npos)
            << error.what();
      }
    });
  };
  write(1, /*fails=*/false);
  write(2, /*fails=*/true);
  EXPECT_EQ(latest_checkpoint(folder.path())->filename(), "step-1");
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"step-1"}));
  write(2, /*fails=*/false);
  const Snapshot got = read_checkpoint(*latest_checkpoint(folder.path()));
  EXPECT_TRUE(
      at::equal(StoredState(got.optimizer, got.slices).joined().tensors.at("loss.w.exp_avg"),
                at::arange(16).view({4, 4}).to(at::kFloat)));
}

TEST(ZeroCheckpoint, of_which_one_rank_is_lost_leaves_the_last_one) {
  const TemporaryFolder folder;
  on_ranks(2, [&](Communicator& comm) {
    write_shared_checkpoint(folder.path(), 1, snapshot_of(comm.rank(), true), 3, {}, comm);
    if (comm.rank() == 1) return comm.cancel("rank 1 was lost");
    EXPECT_THROW(write_shared_checkpoint(folder.path(), 2, snapshot_of(0, true), 3, {}, comm),
                 CommError);
  });
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"step-1"}));
}

// Unfreezing changes the set of sharded parameters, and with it which rank keeps which part.
TEST(ZeroUnfreeze, state_follows_its_parameters_to_the_ranks_that_keep_it_then) {
  const TokenData data(24);
  at::Tensor one;
  for (const int world_size : {1, 3}) {
    for (const int64_t zero : {1, 2}) {
      auto config = tiny_config("gpt2");
      config.model.num_layers = 2;
      config.model.hidden_size = 16;
      config.model.num_heads = 2;
      config.model.freeze = {"transformer.h.*"};
      config.model.unfreeze = {{.parameters = {"transformer.h.1.*"}, .step = 2},
                               {.parameters = {"transformer.h.0.*"}, .step = 4}};
      config.batch.global_batch = "6";
      config.optimizer.kind = "radam";  // its state has steps and moments
      config.parallel.zero = zero;
      config.parallel.first_bucket_mb = config.parallel.bucket_mb = 2.0 / 1024;
      on_engine("threads", world_size, [&](Communicator& comm) {
        RankRun run(config, data, comm);
        for (int i = 0; i < 6; ++i) run.step();
        if (world_size == 1) {
          one = run.weights();
        } else {
          EXPECT_LT(relative(run.weights(), one), 1e-10) << zero;
        }
      });
    }
  }
}

}  // namespace
}  // namespace tanren::testing
