#include "tanren/model/resnet.h"

#include "tanren/base/text.h"
#include "tanren/blocks/block.h"
#include "tanren/model/image_input.h"
#include "tanren/model/init.h"
#include "tanren/model/supervised.h"

#include <ATen/ATen.h>

#include <utility>

namespace tanren {

namespace {

constexpr std::array<std::pair<std::string_view, ResnetShape>, 5> kShapes = {{
    {"resnet18", {{2, 2, 2, 2}, false}},
    {"resnet34", {{3, 4, 6, 3}, false}},
    {"resnet50", {{3, 4, 6, 3}, true}},
    {"resnet101", {{3, 4, 23, 3}, true}},
    {"resnet152", {{3, 8, 36, 3}, true}},
}};

}  // namespace

std::optional<ResnetShape> resnet_shape(std::string_view name) {
  for (const auto& [known, shape] : kShapes) {
    if (known == name) return shape;
  }
  return std::nullopt;
}

std::vector<std::string> resnet_names() {
  std::vector<std::string> names;
  names.reserve(kShapes.size());
  for (const auto& item : kShapes) names.emplace_back(item.first);
  return names;
}

Resnet::Resnet(const ResnetShape& shape) : Module("ResNet"), shape_(shape) {
  stem_.conv =
      register_module("conv1", std::make_shared<Conv2d>(Conv2dOptions{.in = shape.in_channels,
                                                                      .out = 64,
                                                                      .kernel = 7,
                                                                      .stride = 2,
                                                                      .padding = 3,
                                                                      .bias = false}));
  stem_.norm = register_module("bn1", std::make_shared<BatchNorm2d>(64));
  const int64_t expansion = shape.bottleneck ? 4 : 1;
  int64_t in = 64, width = 64;
  for (size_t stage = 0; stage < shape.blocks.size(); ++stage, width *= 2) {
    const std::string name = fmt::format("layer{}", stage + 1);
    const auto owner = register_module(name, std::make_shared<Module>("Stage"));
    for (int64_t i = 0; i < shape.blocks[stage]; ++i) {
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      blocks_.push_back(make_block(*owner, name, i, in, width, stride));
      in = width * expansion;
    }
  }
  head_ = register_module("fc", std::make_shared<Linear>(in, shape.outputs));
  init_convolutions(*this, /*zero_bias=*/false);
}

Resnet::Block Resnet::make_block(Module& stage, const std::string& stage_name, int64_t index,
                                 int64_t in, int64_t width, int64_t stride) const {
  const int64_t out = width * (shape_.bottleneck ? 4 : 1);
  const auto unit = [](const Conv2dOptions& options) {
    return Unit{std::make_shared<Conv2d>(options), std::make_shared<BatchNorm2d>(options.out)};
  };
  Block block;
  block.name = fmt::format("{}.{}", stage_name, index);
  // The shortcut comes first so that the draws from the generator are in torchvision's order.
  if (stride != 1 || in != out) {
    block.downsample = unit({.in = in, .out = out, .kernel = 1, .stride = stride, .bias = false});
  }
  if (shape_.bottleneck) {
    block.units = {unit({.in = in, .out = width, .kernel = 1, .bias = false}),
                   unit({.in = width, .out = width, .stride = stride, .padding = 1, .bias = false}),
                   unit({.in = width, .out = out, .kernel = 1, .bias = false})};
  } else {
    block.units = {unit({.in = in, .out = width, .stride = stride, .padding = 1, .bias = false}),
                   unit({.in = width, .out = out, .padding = 1, .bias = false})};
  }
  block.owner = stage.register_module(to_text(index), std::make_shared<Module>("Block"));
  for (size_t i = 0; i < block.units.size(); ++i) {
    block.owner->register_module(fmt::format("conv{}", i + 1), block.units[i].conv);
    block.owner->register_module(fmt::format("bn{}", i + 1), block.units[i].norm);
  }
  if (block.downsample) {
    const auto shortcut =
        block.owner->register_module("downsample", std::make_shared<Module>("Shortcut"));
    shortcut->register_module("0", block.downsample->conv);
    shortcut->register_module("1", block.downsample->norm);
  }
  return block;
}

at::Tensor Resnet::block_forward(const Block& block, const at::Tensor& x) {
  at::Tensor y = x;
  for (size_t i = 0; i + 1 < block.units.size(); ++i) y = block.units[i].with_relu(y);
  const at::Tensor shortcut = block.downsample ? (*block.downsample)(x) : x;
  return block.units.back().with_relu(y, shortcut);
}

at::Tensor Resnet::forward(const at::Tensor& input) const {
  at::Tensor x = run_block("conv1", [&] {
    return at::max_pool2d(stem_.with_relu(input), /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
  });
  for (const Block& block : blocks_) {
    x = run_block(block.name, x, block.owner.get(),
                  [&block](const at::Tensor& below) { return block_forward(block, below); });
  }
  return run_block("fc", [&] {
    return head_->forward(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  });
}

Task resnet_task(const ModelOptions& asked, const DataInfo& info) {
  const ModelOptions options = with_trained_width(asked, ResnetShape().outputs);
  auto shape = resnet_shape(options.size.empty() ? "resnet18" : options.size);
  if (!shape) throw_unknown_size(options.size, resnet_names());
  shape->in_channels = image_channels(info, "resnet", /*min_edge=*/1);
  shape->outputs = num_outputs(options, info);
  const auto model = std::make_shared<Resnet>(*shape);
  return supervised(
      model, [model](const at::Tensor& x) { return model->forward(with_channels(x)); }, options,
      info);
}

}  // namespace tanren
