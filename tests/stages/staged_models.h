// Small models for tests of runs in stages: nine samples a replica in microbatches of four, the
// last one of one sample.
#pragma once

#include "tanren/blocks/block.h"
#include "tanren/model/resnet.h"
#include "tanren/model/supervised.h"
#include "tests/support/block_config.h"
#include "tests/support/stage_run.h"
#include "tests/support/token_data.h"

#include <torch/nn/modules/linear.h>

#include <functional>
#include <memory>
#include <string>

namespace tanren::testing {

// The output of its first block is transposed in memory, and its second block changes this output
// in place. Code between blocks also uses the second layer.
struct StripesNet : torch::nn::Module {
  StripesNet() {
    first = register_module("first", torch::nn::Linear(64, 12));
    second = register_module("second", torch::nn::Linear(12, 12));
    third = register_module("third", torch::nn::Linear(12, 5));
  }
  at::Tensor forward(const at::Tensor& inputs) {
    at::Tensor x = run_block("first", inputs.flatten(1),
                             [this](const at::Tensor& in) { return first(in).t(); });
    const at::Tensor scale = second->bias.detach().abs() + 1;
    x = run_block("second", [&] { return second(x.relu_().t()).tanh(); });
    return run_block("third", [&] { return third(x * scale); });
  }

  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
};

struct StagedModel {
  RunConfig config;
  std::unique_ptr<Dataset> data;
  std::function<Task()> make_task;  // empty: the config's model

  // `kind`: of the registry, or "own"; a "resnet" has a block in each of its first two stages.
  StagedModel(const std::string& kind, const std::string& mode, int64_t samples = 64)
      : config(block_config(kind == "own" ? "mlp" : kind, mode)) {
    config.data.train.samples = samples;
    config.batch.microbatch = 4;
    config.clip.norm = 1;
    if (kind == "mlp") config.model.hidden = {16, 16, 16};
    if (kind == "resnet") {
      config.model.dropout.reset();
      config.data.train.fields[0] = "inputs: float[3,32,32] in [-1, 1]";
    }
    data = open_dataset(config.data.train, "data.train");
    if (kind != "own" && kind != "resnet") return;
    make_task = [kind, options = config.model, info = data->info()] {
      at::manual_seed(7);
      if (kind == "own") return supervised(std::make_shared<StripesNet>(), options, info);
      const ResnetShape shape{.blocks = {1, 1, 0, 0}, .outputs = 5};
      return supervised(std::make_shared<Resnet>(shape), options, info);
    };
  }

  StagedRun run(int replicas) const {
    StagedRun run{.config = config, .data = *data, .make_task = make_task, .replicas = replicas};
    run.config.batch.global_batch = std::to_string(9 * replicas);
    return run;
  }
};

}  // namespace tanren::testing
