#include "tanren/model/pix2pixhd_networks.h"

#include "tanren/base/text.h"
#include "tanren/blocks/block.h"
#include "tanren/model/init.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace tanren {
namespace {

constexpr int64_t kWidestDiscriminator = 512;  // channels

at::Tensor halved(const at::Tensor& pictures) {
  return at::avg_pool2d(pictures, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1,
                        /*ceil_mode=*/false, /*count_include_pad=*/false);
}

// NVIDIA's: weights of convolutions from a normal distribution, biases as torch draws them.
void init_weights(const Module& module) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : module.parameters()) {
    if (parameter.dim() == 4) draw_normal(parameter, 0.02);
  }
}

std::shared_ptr<Conv2d> seven(int64_t in, int64_t out) {
  return std::make_shared<Conv2d>(Conv2dOptions{.in = in, .out = out, .kernel = 7});
}

std::shared_ptr<Conv2d> three(int64_t in, int64_t out, int64_t stride, int64_t padding) {
  return std::make_shared<Conv2d>(
      Conv2dOptions{.in = in, .out = out, .stride = stride, .padding = padding});
}

}  // namespace

PictureBlocks::PictureBlocks(Module& parent, const std::string& name, const std::string& path)
    : owner_(parent.register_module(name, std::make_shared<Module>("Sequential"))),
      path_(path + "." + name) {}

// A block of so many modules whose first one with parameters comes after `before` others.
PictureBlocks::Block& PictureBlocks::add(Kind kind, int64_t before, int64_t modules) {
  blocks_.push_back({kind, fmt::format("{}.{}", path_, next_ + before), {}, {}, {}});
  next_ += modules;
  return blocks_.back();
}

void PictureBlocks::widen(int64_t in, int64_t out) {
  const std::string index = to_text(next_ + 1);
  add(Kind::widen, 1, 4).first = owner_->register_module(index, seven(in, out));
}

void PictureBlocks::halve(int64_t in, int64_t out) {
  const std::string index = to_text(next_);
  add(Kind::halve, 0, 3).first =
      owner_->register_module(index, three(in, out, /*stride=*/2, /*padding=*/1));
}

void PictureBlocks::residual(int64_t channels) {
  const auto block =
      owner_->register_module(to_text(next_), std::make_shared<Module>("ResnetBlock"));
  const auto inner = block->register_module("conv_block", std::make_shared<Module>("Sequential"));
  Block& added = add(Kind::residual, 0, 1);
  // Only the convolutions, modules 1 and 5, have parameters. The others are the paddings 0 and 4,
  // the norms 2 and 6, and the activation 3.
  added.first = inner->register_module("1", three(channels, channels, /*stride=*/1, /*padding=*/0));
  added.second =
      inner->register_module("5", three(channels, channels, /*stride=*/1, /*padding=*/0));
}

void PictureBlocks::redouble(int64_t in, int64_t out) {
  const std::string index = to_text(next_);
  add(Kind::redouble, 0, 3).up =
      owner_->register_module(index, std::make_shared<ConvTranspose2d>(in, out));
}

void PictureBlocks::paint(int64_t in, int64_t out) {
  const std::string index = to_text(next_ + 1);
  add(Kind::paint, 1, 3).first = owner_->register_module(index, seven(in, out));
}

at::Tensor PictureBlocks::block_forward(const Block& block, const at::Tensor& x) {
  switch (block.kind) {
    case Kind::widen: return instance_norm(block.first->forward(reflection_pad(x, 3))).relu_();
    case Kind::halve: return instance_norm(block.first->forward(x)).relu_();
    case Kind::residual: {
      const at::Tensor inner = instance_norm(block.first->forward(reflection_pad(x, 1))).relu_();
      return x + instance_norm(block.second->forward(reflection_pad(inner, 1)));
    }
    case Kind::redouble: return instance_norm(block.up->forward(x)).relu_();
    case Kind::paint: return at::tanh(block.first->forward(reflection_pad(x, 3)));
  }
  return x;
}

at::Tensor PictureBlocks::forward(at::Tensor x) const {
  for (const Block& block : blocks_) {
    x = run_block(block.name, x, owner_.get(),
                  [&block](const at::Tensor& below) { return block_forward(block, below); });
  }
  return x;
}

PictureGenerator::PictureGenerator(const Pix2pixhdShape& shape, const std::string& path)
    : Module(shape.num_enhancers > 0 ? "LocalEnhancer" : "GlobalGenerator"), path_(path) {
  const int64_t enhancers = shape.num_enhancers, levels = shape.num_downsamplings;
  global_ = PictureBlocks(*this, "model", path);
  int64_t channels = shape.generator_channels << enhancers;
  global_.widen(shape.in_channels, channels);
  for (int64_t i = 0; i < levels; ++i, channels *= 2) global_.halve(channels, 2 * channels);
  for (int64_t i = 0; i < shape.num_blocks; ++i) global_.residual(channels);
  for (int64_t i = 0; i < levels; ++i, channels /= 2) global_.redouble(channels, channels / 2);
  if (enhancers == 0) global_.paint(channels, shape.out_channels);
  for (int64_t i = 1; i <= enhancers; ++i) {
    const int64_t own = shape.generator_channels << (enhancers - i);
    Enhancer enhancer{PictureBlocks(*this, fmt::format("model{}_1", i), path),
                      PictureBlocks(*this, fmt::format("model{}_2", i), path)};
    enhancer.down.widen(shape.in_channels, own);
    enhancer.down.halve(own, 2 * own);
    for (int64_t j = 0; j < shape.enhancer_blocks; ++j) enhancer.up.residual(2 * own);
    enhancer.up.redouble(2 * own, own);
    if (i == enhancers) enhancer.up.paint(own, shape.out_channels);
    enhancers_.push_back(std::move(enhancer));
  }
  init_weights(*this);
}

at::Tensor PictureGenerator::forward(const at::Tensor& pictures) const {
  std::vector<at::Tensor> sizes{pictures};
  for (size_t i = 0; i < enhancers_.size(); ++i) sizes.push_back(halved(sizes.back()));
  at::Tensor x = global_.forward(sizes.back());
  for (size_t i = 0; i < enhancers_.size(); ++i) {
    const at::Tensor& seen = sizes[enhancers_.size() - 1 - i];
    const at::Tensor own = enhancers_[i].down.forward(seen);
    x = enhancers_[i].up.forward(run_block(path_, [&] { return own + x; }));
  }
  return x;
}

PatchDiscriminators::PatchDiscriminators(const Pix2pixhdShape& shape, const std::string& path)
    : Module("MultiscaleDiscriminator"),
      path_(path),
      scales_(static_cast<size_t>(shape.discriminators)) {
  const int64_t num_layers = shape.discriminator_layers + 2;
  for (int64_t scale = 0; scale < shape.discriminators; ++scale) {
    // NVIDIA's last scale sees the full resolution.
    auto& layers = scales_[static_cast<size_t>(shape.discriminators - 1 - scale)];
    int64_t in = shape.in_channels + shape.out_channels, out = shape.discriminator_channels;
    for (int64_t i = 0; i < num_layers; ++i) {
      Layer layer;
      const std::string name = fmt::format("scale{}_layer{}", scale, i);
      layer.name = path + "." + name;
      layer.is_last = i + 1 == num_layers;
      layer.has_norm = i > 0 && !layer.is_last;
      layer.owner = register_module(name, std::make_shared<Module>("Sequential"));
      layer.conv = layer.owner->register_module(
          "0", std::make_shared<Conv2d>(Conv2dOptions{.in = in,
                                                      .out = layer.is_last ? 1 : out,
                                                      .kernel = 4,
                                                      .stride = i + 2 < num_layers ? 2 : 1,
                                                      .padding = 2}));
      layers.push_back(std::move(layer));
      in = out;
      out = std::min(2 * out, kWidestDiscriminator);
    }
  }
  init_weights(*this);
}

at::Tensor PatchDiscriminators::layer_forward(const Layer& layer, const at::Tensor& x) {
  at::Tensor y = layer.conv->forward(x);
  if (layer.is_last) return y;
  if (layer.has_norm) y = instance_norm(y);
  return at::leaky_relu_(y, /*negative_slope=*/0.2);
}

std::vector<ScaleFeatures> PatchDiscriminators::forward(const at::Tensor& inputs,
                                                        const at::Tensor& pictures) const {
  std::vector<ScaleFeatures> all;
  at::Tensor seen = run_block(path_, [&] { return at::cat({inputs, pictures}, 1); });
  for (const auto& layers : scales_) {
    if (!all.empty()) seen = run_block(path_, [&] { return halved(seen); });
    ScaleFeatures features;
    at::Tensor x = seen;
    for (const Layer& layer : layers) {
      x = run_block(layer.name, x, layer.owner.get(),
                    [&layer](const at::Tensor& below) { return layer_forward(layer, below); });
      features.push_back(x);
    }
    all.push_back(std::move(features));
  }
  return all;
}

}  // namespace tanren
