// model.memory_format: channels-last weights train as plain ones do, go on bitwise, and are plain in
// every file.
#include "tests/support/tiny_run.h"

#include "tanren/base/file.h"
#include "tanren/base/safetensors.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/run/run.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace tanren::testing {
namespace {

RunConfig image_config(const std::string& memory_format) {
  RunConfig config = tiny_config("convnet");
  config.run.steps = 6;
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
  TinyRun last(image_config("auto")), plain(image_config("contiguous"));
  EXPECT_TRUE(kernel(last.state).is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_FALSE(kernel(last.state).is_contiguous());
  EXPECT_EQ(kernel(last.state).grad().strides(), kernel(last.state).strides());
  EXPECT_TRUE(kernel(plain.state).is_contiguous());
  const Batch batch = last.loader->next().local;
  EXPECT_FALSE(prepared(batch, last.parts)["inputs"].is_contiguous());
  EXPECT_TRUE(prepared(batch, plain.parts)["inputs"].is_contiguous());
  EXPECT_TRUE(at::equal(prepared(batch, last.parts)["inputs"], batch["inputs"]));
}

TEST(MemoryFormat, trains_as_the_plain_run_does) {
  const TemporaryFolder folder;
  std::vector<double> losses;
  for (const std::string format : {"contiguous", "channels_last"}) {
    const auto output =
        run({.config = image_config(format), .folder = folder.path() / format}, ModelRegistry());
    losses.push_back(output.summary.final_loss);
  }
  EXPECT_NEAR(losses[1], losses[0], 1e-4 * losses[0]);
}

TEST(MemoryFormat, stops_and_goes_on_bitwise_and_writes_plain_files) {
  const TemporaryFolder folder;
  const auto go = [&](const RunConfig& config, const std::string& name) {
    return run({.config = config, .folder = folder.path() / name}, ModelRegistry());
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
  // The same weights by their names and shapes, whoever reads the file, and in the plain order.
  const auto file = read_safetensors(folder.path() / "whole" / "model.safetensors");
  const auto& averaged = whole.average.tensors;
  for (const auto& [name, tensor] : file.tensors) {
    const auto* mean = averaged.find(name);
    EXPECT_TRUE(tensor.is_contiguous()) << name;
    EXPECT_TRUE(at::equal(tensor, mean != nullptr ? *mean : whole.model.tensors.at(name))) << name;
  }
  // A run of one format goes on in the other.
  RunConfig longer = image_config("contiguous");
  longer.run.steps = 8;
  EXPECT_EQ(go(longer, "whole").summary.steps, 8);
}

}  // namespace
}  // namespace tanren::testing
