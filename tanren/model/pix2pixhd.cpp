#include "tanren/model/pix2pixhd.h"

#include "tanren/base/error.h"
#include "tanren/base/metric_names.h"
#include "tanren/base/text.h"
#include "tanren/model/image_input.h"
#include "tanren/model/losses.h"
#include "tanren/model/perceptual_loss.h"

#include <ATen/ATen.h>

#include <fmt/ranges.h>

#include <utility>

namespace tanren {
namespace {

constexpr double kFeatureWeight = 10;  // NVIDIA's lambda_feat, for both kinds of features
constexpr int64_t kSmallestSeen = 16;  // vgg19 halves a picture four times

// How far the patches' scores are from `target`, summed over scales: the least-squares GAN (Mao et
// al., 2016).
at::Tensor patch_loss(const std::vector<ScaleFeatures>& scales, double target) {
  at::Tensor sum;
  for (const ScaleFeatures& features : scales) {
    const at::Tensor& scores = features.back();
    const at::Tensor part = mse(scores, at::full_like(scores, target)).sum;
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

// Feature matching: the layers of all scales but the last ones, which give the scores.
at::Tensor feature_loss(const std::vector<ScaleFeatures>& made,
                        const std::vector<ScaleFeatures>& real) {
  at::Tensor sum;
  for (size_t scale = 0; scale < made.size(); ++scale) {
    const size_t layers = made[scale].size() - 1;
    for (size_t i = 0; i < layers; ++i) {
      const at::Tensor part = l1(made[scale][i], real[scale][i].detach()).sum;
      sum = sum.defined() ? sum + part : part;
    }
  }
  // NVIDIA's factors: 4 / (n_layers_D + 1) of a layer, 1 / num_D of a scale.
  const auto layers = static_cast<double>(made.front().size() - 1);
  return sum * (4.0 / layers / static_cast<double>(made.size()));
}

struct Pass {
  Terms generator, discriminator;
  at::Tensor made, real;
};

class Forward {
 public:
  Forward(std::shared_ptr<Pix2pixhd> model, std::shared_ptr<PerceptualLoss> perceptual)
      : model_(std::move(model)),
        perceptual_(std::move(perceptual)),
        reference_(model_->parameters().front()) {}

  Pass operator()(const Batch& batch) const {
    const at::Tensor inputs = pictures(batch["inputs"]);
    Pass pass;
    pass.real = with_channels(batch["labels"]);  // not rounded to weights of 16 bits
    const at::Tensor real = pass.real.to(reference_.scalar_type());
    check(inputs, real);
    pass.made = model_->generator().forward(inputs);
    if (const PatchDiscriminators* discriminator = model_->discriminator()) {
      const auto of_made = discriminator->forward(inputs, pass.made);
      const auto of_real = discriminator->forward(inputs, real);
      pass.generator = {{"gan", patch_loss(of_made, 1)},
                        {"feature", feature_loss(of_made, of_real)}};
      pass.discriminator = {{"real", patch_loss(of_real, 1)}, {"fake", patch_loss(of_made, 0)}};
    }
    pass.generator.push_back(l1(pass.made, pass.real));
    if (perceptual_ != nullptr) pass.generator.push_back((*perceptual_)(pass.made, real));
    return pass;
  }

 private:
  at::Tensor pictures(const at::Tensor& field) const {
    return with_channels(field).to(reference_.scalar_type());
  }

  void check(const at::Tensor& inputs, const at::Tensor& real) const {
    const Pix2pixhdShape& shape = model_->shape();
    const std::vector<int64_t> wanted = {inputs.size(0), shape.out_channels, inputs.size(2),
                                         inputs.size(3)};
    if (real.sizes() != wanted) {
      throw DataError(
          fmt::format("[data] the pictures to make have shape [{}], and pix2pixhd makes [{}] of "
                      "these inputs; give pairs of pictures of the same size",
                      fmt::join(real.sizes(), ", "), fmt::join(wanted, ", ")));
    }
    check_pictures(shape, inputs.size(2), inputs.size(3));
  }

  std::shared_ptr<Pix2pixhd> model_;
  std::shared_ptr<PerceptualLoss> perceptual_;  // null: no such term
  at::Tensor reference_;  // has the module's dtype, also after the module is moved to another
};

void check_perceptual(const DataInfo& info, const Pix2pixhdShape& shape) {
  if (shape.out_channels != 3) {
    throw ConfigError(
        fmt::format("[model] perceptual: vgg19 sees pictures of 3 channels, and these have {}; "
                    "drop it, or make colours",
                    shape.out_channels));
  }
  for (size_t i = info.input_shape.size() - 2; i < info.input_shape.size(); ++i) {
    const int64_t edge = info.input_shape[i];
    if (edge == kAnySize || edge >= kSmallestSeen) continue;
    throw ConfigError(
        fmt::format("[model] perceptual: vgg19 halves a picture four times and needs {} pixels, an "
                    "edge has {}; drop it, or raise data.train.size",
                    kSmallestSeen, edge));
  }
}

}  // namespace

Pix2pixhd::Pix2pixhd(const Pix2pixhdShape& shape) : Module("Pix2PixHD"), shape_(shape) {
  generator_ = register_module("generator", std::make_shared<PictureGenerator>(shape, "generator"));
  if (shape.discriminators == 0) return;
  discriminator_ = register_module("discriminator",
                                   std::make_shared<PatchDiscriminators>(shape, "discriminator"));
}

Task pix2pixhd_task(const ModelOptions& options, const DataInfo& info) {
  const Pix2pixhdShape shape = pix2pixhd_shape(options, info);
  const bool sees = !options.perceptual.empty();
  if (sees) check_perceptual(info, shape);
  const auto model = std::make_shared<Pix2pixhd>(shape);
  // Made after the model, so that the model's initial weights do not depend on it.
  const auto perceptual = sees ? std::make_shared<PerceptualLoss>(options.perceptual) : nullptr;
  const Forward forward(model, perceptual);
  const bool is_gan = shape.discriminators > 0;

  ObjectiveSpec generator{.name = "generator", .terms = {}, .parameters = {"generator.*"}};
  if (is_gan) generator.terms = {{"gan", 1}, {"feature", kFeatureWeight}};
  generator.terms.push_back({"l1", is_gan ? 0.0 : 1.0});
  if (perceptual != nullptr) generator.terms.push_back({"perceptual", kFeatureWeight});

  Task task;
  task.module = model;
  PhaseSpec phase;
  phase.objectives = {generator};
  if (is_gan) {
    phase.objectives.push_back({.name = "discriminator",
                                .terms = {{"real", 0.5}, {"fake", 0.5}},
                                .parameters = {"discriminator.*"}});
  }
  phase.forward = [forward](const Batch& batch) {
    Pass pass = forward(batch);
    pass.generator.insert(pass.generator.end(), pass.discriminator.begin(),
                          pass.discriminator.end());
    return pass.generator;
  };
  task.phases = {std::move(phase)};
  task.predict = [forward](const Batch& batch) {
    Pass pass = forward(batch);
    return Prediction{std::move(pass.generator), pass.made, pass.real};
  };
  task.loss_fields = {"labels"};
  task.metrics = value_metrics();
  if (shape.out_channels == 1 || shape.out_channels == 3) {
    for (const std::string& name : picture_metrics()) task.metrics.push_back(name);
  }
  return task;
}

}  // namespace tanren
