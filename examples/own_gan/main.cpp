// A GAN of your own: a generator that draws digits from noise and a critic that tells them from
// real ones, trained in turns with the hinge loss (Lim & Ye, 2017). Two phases, each with one
// objective; all the rest (accumulation, ranks, precision, checkpoints) is tanren's.

#include "tanren/base/error.h"
#include "tanren/cli.h"
#include "tanren/ops/dropout.h"
#include "tanren/ops/random_tensor.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

constexpr int64_t kNoise = 16, kWidth = 128;

struct Gan : torch::nn::Module {
  explicit Gan(int64_t pixels) {
    using torch::nn::Linear;
    below = register_module("generator_below", Linear(kNoise, kWidth));
    above = register_module("generator_above", Linear(kWidth, pixels));
    look = register_module("critic_look", Linear(pixels, kWidth));
    score = register_module("critic_score", Linear(kWidth, 1));
  }
  // [n, pixels] in (0, 1), from noise that is drawn by sample, so that ranks and microbatches
  // cannot change it.
  at::Tensor generate(int64_t samples) {
    const at::Tensor noise = tanren::normal({samples, kNoise}, tanren::site_id("noise"),
                                            below->weight.options().dtype(at::kFloat));
    return at::sigmoid(above(at::leaky_relu(below(noise.to(below->weight.dtype())), 0.2)));
  }
  // [n]: high for what looks real.
  at::Tensor criticise(const at::Tensor& pictures) {
    return score(at::leaky_relu(look(pictures), 0.2)).squeeze(1).to(at::kFloat);
  }

  torch::nn::Linear below{nullptr}, above{nullptr}, look{nullptr}, score{nullptr};
};

tanren::Task gan_task(const tanren::DataInfo& info) {
  const auto net = std::make_shared<Gan>(c10::multiply_integers(info.input_shape));
  tanren::PhaseSpec critic, generator;
  critic.name = "critic";
  critic.objectives = {{"critic", {{"fake", 1}, {"real", 1}}, {"critic_*"}}};
  critic.forward = [net](const tanren::Batch& batch) {
    const at::Tensor real = batch["inputs"].flatten(1).to(net->look->weight.dtype());
    at::Tensor fake;
    {
      const at::NoGradGuard generator_stays;
      fake = net->generate(batch.size());
    }
    return tanren::Terms{{"fake", at::relu(1 + net->criticise(fake)).sum()},
                         {"real", at::relu(1 - net->criticise(real)).sum()}};
  };
  generator.name = "generator";
  generator.objectives = {{"generator", {{"score", -1}}, {"generator_*"}, /*every=*/2}};
  generator.forward = [net](const tanren::Batch& batch) {
    return tanren::Terms{{"score", net->criticise(net->generate(batch.size())).sum()}};
  };
  tanren::Task task;
  task.module = net;
  task.phases = {critic, generator};
  // An evaluation shows how far apart the critic holds real and generated digits.
  task.predict = [critic](const tanren::Batch& batch) {
    return tanren::Prediction{critic.forward(batch), batch["inputs"].flatten(1), batch["labels"]};
  };
  return task;
}

int main(int argc, char** argv) {
  tanren::ModelRegistry models;
  models.add("gan", [](const tanren::ModelOptions&, const tanren::DataInfo& info) {
    if (info.input_shape.empty()) {
      throw tanren::ConfigError("[gan] wants pictures; set data.train.shape = [1, h, w]");
    }
    return gan_task(info);
  });
  return tanren::cli::main(argc, argv, models);
}
