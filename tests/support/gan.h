// A small GAN for tests of several objectives: one forward for both, or a phase for each.
#pragma once

#include "tanren/base/task.h"
#include "tests/support/tiny_run.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <memory>
#include <string>

namespace tanren::testing {

struct GanNet : torch::nn::Module {
  explicit GanNet(bool with_norm) {
    make = register_module("generator", torch::nn::Linear(16, 64));
    hidden = register_module("critic_hidden", torch::nn::Linear(64, 16));
    score = register_module("critic_score", torch::nn::Linear(16, 1));
    if (!with_norm) return;
    norm = register_module("generator_norm", torch::nn::BatchNorm1d(64));
    critic_norm = register_module("critic_norm", torch::nn::BatchNorm1d(16));
  }
  // [n, 8, 8] pictures → [n, 64] pictures made from a part of them.
  at::Tensor generate(const Batch& batch) {
    at::Tensor made = make->forward(real(batch).narrow(1, 0, 16));
    if (!norm.is_empty()) made = norm->forward(made);
    return at::tanh(made);
  }
  at::Tensor real(const Batch& batch) {
    return batch["inputs"].flatten(1).to(make->weight.scalar_type());
  }
  // [n]
  at::Tensor criticise(const at::Tensor& picture) {
    at::Tensor features = hidden->forward(picture);
    if (!critic_norm.is_empty()) features = critic_norm->forward(features);
    return score->forward(at::tanh(features)).squeeze(1);
  }
  torch::nn::Linear make{nullptr}, hidden{nullptr}, score{nullptr};
  torch::nn::BatchNorm1d norm{nullptr}, critic_norm{nullptr};
};

inline Term sum_of(const std::string& name, const at::Tensor& losses) {
  return {.name = name, .sum = losses.sum()};
}

inline ObjectiveSpec critic_spec() {
  return {
      .name = "critic", .terms = {{"real", 1}, {"fake", 1}}, .parameters = {"critic*"}, .every = 1};
}
inline ObjectiveSpec generator_spec(int64_t every) {
  return {
      .name = "generator", .terms = {{"score", -1}}, .parameters = {"generator*"}, .every = every};
}

inline std::shared_ptr<GanNet> gan_net(bool with_norm) {
  at::manual_seed(5);
  return std::make_shared<GanNet>(with_norm);
}

// Both objectives on one forward, which scores the generated pictures once.
inline Task one_forward_gan(int64_t every = 1, bool with_norm = false) {
  const auto net = gan_net(with_norm);
  Task task;
  task.module = net;
  PhaseSpec phase;
  phase.objectives = {critic_spec(), generator_spec(every)};
  phase.forward = [net](const Batch& batch) -> Terms {
    const at::Tensor made = net->criticise(net->generate(batch));
    return {sum_of("real", at::relu(1 - net->criticise(net->real(batch)))),
            sum_of("fake", at::relu(1 + made)), sum_of("score", made)};
  };
  task.phases = {phase};
  return task;
}

// A phase for each objective: the generator is judged by the critic's new weights.
inline Task two_phase_gan(int64_t every = 1, bool with_norm = false) {
  const auto net = gan_net(with_norm);
  Task task;
  task.module = net;
  PhaseSpec critic, generator;
  critic.name = "critic";
  critic.objectives = {critic_spec()};
  critic.forward = [net](const Batch& batch) -> Terms {
    const at::Tensor made = net->generate(batch).detach();
    return {sum_of("real", at::relu(1 - net->criticise(net->real(batch)))),
            sum_of("fake", at::relu(1 + net->criticise(made)))};
  };
  generator.name = "generator";
  generator.objectives = {generator_spec(every)};
  generator.forward = [net](const Batch& batch) -> Terms {
    return {sum_of("score", net->criticise(net->generate(batch)))};
  };
  task.phases = {critic, generator};
  return task;
}

inline RunConfig gan_config(const std::string& mode = "fp64") {
  auto config = tiny_config("gan");
  config.batch.global_batch = "12";  // 64 samples: the last batch of an epoch has 4
  config.optimizer.kind = "adam";
  config.precision.mode = mode;
  return config;
}

}  // namespace tanren::testing
