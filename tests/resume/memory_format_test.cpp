// model.memory_format: channels-last weights train like contiguous ones, resume bitwise, and are
// contiguous in every file.
#include "tests/support/tiny_run.h"

#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/formats/safetensors.h"
#include "tanren/run/run.h"
#include "tanren/train/prepared.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

namespace tanren::testing {
namespace {

RunConfig image_config(const std::string& memory_format) {
  RunConfig config = tiny_config("convnet");
  config.run.steps = 6;
  // With fewer than 8, oneDNN's strided 1 × 1 convolution writes past its memory in channels_last.
  config.model.channels = {8, 16};
  config.model.norm = "batch";
  config.model.dropout = 0.3;
  config.model.memory_format = memory_format;
  config.data.train.fields = {"inputs: float[3,8,8] in [-1, 1]", "labels: int[] in [0, 4]"};
  config.data.eval = config.data.train;
  config.evaluate.every = 3;
  config.batch.microbatch = 16;
  config.precision.mode = "fp32";
  config.average.kind = "ema";
  return config;
}

at::Tensor kernel(const RunState& state) {
  return state.task.module->named_parameters()["stages.0.conv1.weight"];
}

TEST(MemoryFormat, lays_weights_gradients_and_batches_as_planned) {
  if (test_device() != "cpu") GTEST_SKIP() << "a device plans another layout";
  TinyRun last(image_config("auto")), plain(image_config("contiguous"));
  EXPECT_TRUE(kernel(last.state).is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_FALSE(kernel(last.state).is_contiguous());
  EXPECT_EQ(kernel(last.state).grad().strides(), kernel(last.state).strides());
  EXPECT_TRUE(kernel(plain.state).is_contiguous());
  const Batch batch = last.loader->next().local;
  EXPECT_FALSE(prepared(batch, last.state.task, last.parts)["inputs"].is_contiguous());
  EXPECT_TRUE(prepared(batch, plain.state.task, plain.parts)["inputs"].is_contiguous());
  EXPECT_TRUE(at::equal(prepared(batch, last.state.task, last.parts)["inputs"], batch["inputs"]));
}

TEST(MemoryFormat, trains_as_the_plain_run_does) {
  const TemporaryFolder folder;
  std::vector<double> losses;
  for (const std::string format : {"contiguous", "channels_last"}) {
    const auto output =
        run({.config = image_config(format), .folder = folder.path() / format}, test_registry());
    losses.push_back(output.summary.final_loss);
  }
  EXPECT_NEAR(losses[1], losses[0], 1e-4 * losses[0]);
}

TEST(MemoryFormat, stops_and_goes_on_bitwise_and_writes_plain_files) {
  const TemporaryFolder folder;
  const auto go = [&](const RunConfig& config, const std::string& name) {
    return run({.config = config, .folder = folder.path() / name}, test_registry());
  };
  const RunConfig config = image_config("channels_last");
  go(config, "whole");
  RunConfig part = config;
  part.run.stop_after = 2;
  go(part, "stopped");
  go(config, "stopped");
  const auto last = [&](const std::string& name) {
    return read_checkpoint(*latest_checkpoint(folder.path() / name / "checkpoints"));
  };
  const Snapshot whole = last("whole"), stopped = last("stopped");
  for (const auto& [name, tensor] : whole.model.tensors) {
    EXPECT_TRUE(at::equal(tensor, stopped.model.tensors.at(name))) << name;
  }
  for (const auto& [name, tensor] : whole.optimizer.tensors) {
    EXPECT_TRUE(at::equal(tensor, stopped.optimizer.tensors.at(name))) << name;
  }
  for (const auto& [name, tensor] : whole.average.tensors) {
    EXPECT_TRUE(at::equal(tensor, stopped.average.tensors.at(name))) << name;
  }
  // The file has the same weights, with the same names and shapes, in contiguous order.
  const auto file = read_safetensors(folder.path() / "whole" / "model.safetensors");
  const auto& averaged = whole.average.tensors;
  for (const auto& [name, tensor] : file.tensors) {
    const auto* mean = averaged.find(name);
    EXPECT_TRUE(tensor.is_contiguous()) << name;
    EXPECT_TRUE(at::equal(tensor, mean != nullptr ? *mean : whole.model.tensors.at(name))) << name;
  }
  // A run of one format can resume in the other.
  RunConfig longer = image_config("contiguous");
  longer.run.steps = 8;
  EXPECT_EQ(go(longer, "whole").summary.steps, 8);
}

RunConfig packed_config(const std::string& memory_format, const std::string& state) {
  RunConfig config = image_config(memory_format);
  config.model.channels = {32, 64};
  config.optimizer.state = state;
  config.average.kind = "none";
  return config;
}

Snapshot last_of(const std::filesystem::path& folder) {
  return read_checkpoint(*latest_checkpoint(folder / "checkpoints"));
}

// Issue 21: packed state did not cover kernels in channels-last, and worked in only one layout.
TEST(MemoryFormat, packed_state_stops_and_goes_on_bitwise_in_either_layout) {
  const TemporaryFolder folder;
  const auto go = [&](const RunConfig& config, const std::string& name) {
    return run({.config = config, .folder = folder.path() / name}, test_registry());
  };
  for (const std::string state : {"8bit", "bf16"}) {
    for (const std::string format : {"contiguous", "channels_last"}) {
      SCOPED_TRACE(state + " " + format);
      const RunConfig config = packed_config(format, state);
      const std::string name = state + format;
      go(config, name);
      RunConfig part = config;
      part.run.stop_after = 2;
      go(part, name + "-stopped");
      go(config, name + "-stopped");
      const Snapshot whole = last_of(folder.path() / name);
      const Snapshot stopped = last_of(folder.path() / (name + "-stopped"));
      for (const auto& [key, tensor] : whole.model.tensors) {
        EXPECT_TRUE(at::equal(tensor, stopped.model.tensors.at(key))) << key;
      }
      for (const auto& [key, tensor] : whole.optimizer.tensors) {
        EXPECT_TRUE(at::equal(tensor, stopped.optimizer.tensors.at(key))) << key;
      }
      EXPECT_EQ(whole.optimizer.values, stopped.optimizer.values);
      const std::string kernel = "train.loss.stages.1.conv2.weight.exp_avg";
      EXPECT_TRUE(whole.optimizer.tensors.contains(kernel + (state == "8bit" ? "_codes" : "")));
    }
  }
}

TEST(MemoryFormat, packed_state_goes_on_in_the_other_layout_and_back) {
  const TemporaryFolder folder;
  const auto go = [&](RunConfig config, const std::string& name, std::optional<int64_t> stop) {
    config.run.stop_after = stop;
    return run({.config = config, .folder = folder.path() / name}, test_registry());
  };
  const auto moved = [&](const std::string& name) {
    const Snapshot snapshot = last_of(folder.path() / name);
    return snapshot.model.tensors.at("stages.1.conv2.weight").clone();
  };
  for (const std::string state : {"8bit", "bf16"}) {
    for (const auto& [first, second] :
         {std::pair<std::string, std::string>{"contiguous", "channels_last"},
          {"channels_last", "contiguous"}}) {
      SCOPED_TRACE(state + " from " + first);
      const std::string name = state + first;
      go(packed_config(first, state), name + "-whole", std::nullopt);
      go(packed_config(first, state), name, 2);
      const at::Tensor start = moved(name);
      go(packed_config(second, state), name, 2);
      go(packed_config(first, state), name, std::nullopt);
      const at::Tensor whole = moved(name + "-whole"), back = moved(name);
      const double way = (whole - start).norm().item<double>();
      EXPECT_LT((back - whole).norm().item<double>(), 0.1 * way);
      EXPECT_GT(way, 0);
    }
  }
}

}  // namespace
}  // namespace tanren::testing
