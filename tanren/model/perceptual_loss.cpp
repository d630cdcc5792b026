#include "tanren/model/perceptual_loss.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/formats/pt_file.h"
#include "tanren/formats/safetensors.h"
#include "tanren/model/losses.h"
#include "tanren/model/vgg.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <fmt/ranges.h>

#include <array>

namespace tanren {
namespace {

constexpr std::array<double, 5> kSliceWeights = {1.0 / 32, 1.0 / 16, 1.0 / 8, 1.0 / 4, 1.0};

TensorMap tensors_of(const std::filesystem::path& file) {
  if (file.extension() == ".safetensors") return read_safetensors(file).tensors;
  return read_pt(file).content.tensors;
}

void take(const TensorMap& found, const std::string& name, const std::filesystem::path& file,
          at::Tensor own) {
  const at::Tensor* tensor = found.find(name);
  if (tensor == nullptr || tensor->sizes() != own.sizes()) {
    const std::string what =
        tensor == nullptr ? "is missing" : fmt::format("is [{}]", fmt::join(tensor->sizes(), ", "));
    throw CheckpointError(
        fmt::format("[model] perceptual {}: {} {}, torchvision's vgg19 has [{}]; name a file of "
                    "its weights",
                    file.string(), name, what, fmt::join(own.sizes(), ", ")));
  }
  own.copy_(*tensor);
}

}  // namespace

PerceptualLoss::PerceptualLoss(const std::filesystem::path& file) {
  const at::NoGradGuard no_grad;
  TensorMap found;
  int64_t in = 3, index = 0;
  size_t slices = 0;
  bool begins_stage = true;
  const VggShape shape = *vgg_shape("vgg19");
  for (const int64_t out : shape.channels) {
    if (slices == kSliceWeights.size()) break;
    if (out == 0) {
      layers_.push_back({});
      ++index;
      begins_stage = true;
      continue;
    }
    const auto conv = std::make_shared<Conv2d>(Conv2dOptions{.in = in, .out = out, .padding = 1});
    for (const auto& item : conv->named_parameters()) {
      item.value().set_requires_grad(false);
      if (is_dry(item.value())) continue;
      if (found.empty()) found = tensors_of(file);
      take(found, fmt::format("features.{}.{}", index, item.key()), file, item.value());
    }
    layers_.push_back({conv, begins_stage});
    slices += begins_stage ? 1 : 0;
    begins_stage = false;
    in = out;
    index += 2;  // the convolution and its activation
  }
}

// The constants follow the pictures' dtype and device.
void PerceptualLoss::follow(const at::Tensor& pictures) {
  for (const Layer& layer : layers_) {
    if (layer.conv == nullptr) continue;
    for (at::Tensor& parameter : layer.conv->parameters()) {
      const bool same = parameter.scalar_type() == pictures.scalar_type() &&
                        parameter.device() == pictures.device();
      if (!same) parameter.set_data(parameter.to(pictures.device(), pictures.scalar_type()));
    }
  }
}

std::vector<at::Tensor> PerceptualLoss::features(at::Tensor x) const {
  std::vector<at::Tensor> slices;
  for (const Layer& layer : layers_) {
    x = layer.conv == nullptr ? at::max_pool2d(x, /*kernel_size=*/2, /*stride=*/2)
                              : layer.conv->forward(x).relu_();
    if (layer.ends_slice) slices.push_back(x);
  }
  return slices;
}

Term PerceptualLoss::operator()(const at::Tensor& made, const at::Tensor& real) {
  std::vector<at::Tensor> wanted;
  {
    const at::NoGradGuard no_grad;
    follow(real);
    wanted = features(real);
  }
  const std::vector<at::Tensor> found = features(made);
  Term term{.name = "perceptual", .sum = {}};
  for (size_t i = 0; i < found.size(); ++i) {
    const at::Tensor part = kSliceWeights.at(i) * l1(found[i], wanted[i]).sum;
    term.sum = term.sum.defined() ? term.sum + part : part;
  }
  return term;
}

}  // namespace tanren
