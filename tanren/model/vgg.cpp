#include "tanren/model/vgg.h"

#include "tanren/base/text.h"
#include "tanren/blocks/block.h"
#include "tanren/model/image_input.h"
#include "tanren/model/init.h"
#include "tanren/model/supervised.h"
#include "tanren/ops/dropout.h"

#include <ATen/ATen.h>

#include <array>

namespace tanren {

namespace {

struct VggPreset {
  std::string_view name;
  std::array<int, 5> convolutions;  // per stage of 64, 128, 256, 512, 512 channels
};
constexpr std::array<VggPreset, 4> kVggPresets = {{
    {"vgg11", {1, 1, 2, 2, 2}},
    {"vgg13", {2, 2, 2, 2, 2}},
    {"vgg16", {2, 2, 3, 3, 3}},
    {"vgg19", {2, 2, 4, 4, 4}},
}};
constexpr std::array<int64_t, 5> kWidths = {64, 128, 256, 512, 512};
constexpr int64_t kPooled = 7, kHidden = 4096;

}  // namespace

std::optional<VggShape> vgg_shape(std::string_view name) {
  constexpr std::string_view kSuffix = "_bn";
  const bool batch_norm =
      name.size() > kSuffix.size() && name.substr(name.size() - kSuffix.size()) == kSuffix;
  if (batch_norm) name.remove_suffix(kSuffix.size());
  for (const auto& preset : kVggPresets) {
    if (preset.name != name) continue;
    VggShape shape;
    shape.batch_norm = batch_norm;
    for (size_t stage = 0; stage < kWidths.size(); ++stage) {
      shape.channels.insert(shape.channels.end(), static_cast<size_t>(preset.convolutions[stage]),
                            kWidths[stage]);
      shape.channels.push_back(0);
    }
    return shape;
  }
  return std::nullopt;
}

std::vector<std::string> vgg_names() {
  std::vector<std::string> names;
  for (const auto& preset : kVggPresets) {
    names.emplace_back(preset.name);
    names.push_back(std::string(preset.name) + "_bn");
  }
  return names;
}

Vgg::Vgg(const VggShape& shape) : Module("VGG"), shape_(shape) {
  const auto features = register_module("features", std::make_shared<Module>("Features"));
  int64_t in = shape.in_channels, index = 0;
  for (const int64_t out : shape.channels) {
    if (out == 0) {
      if (features_.empty()) features_.push_back({.name = "features.0"});
      ++features_.back().halvings;
      ++index;  // the pooling
      continue;
    }
    Stage stage;
    stage.name = fmt::format("features.{}", index);
    stage.conv = features->register_module(
        to_text(index++),
        std::make_shared<Conv2d>(Conv2dOptions{.in = in, .out = out, .padding = 1}));
    if (shape.batch_norm) {
      stage.norm = features->register_module(to_text(index++), std::make_shared<BatchNorm2d>(out));
    }
    in = out;
    ++index;  // the activation
    features_.push_back(std::move(stage));
  }
  // Dropout and activations have the indices 1, 2, 4 and 5 in torchvision's classifier.
  classifier_part_ = register_module("classifier", std::make_shared<Module>("Classifier"));
  const auto linear = [&](const char* name, int64_t from, int64_t to) {
    classifier_.push_back(
        classifier_part_->register_module(name, std::make_shared<Linear>(from, to)));
  };
  linear("0", in * kPooled * kPooled, kHidden);
  linear("3", kHidden, kHidden);
  linear("6", kHidden, shape.outputs);
  init_convolutions(*this, /*zero_bias=*/true);
  init_linears(*this, 0.01);
}

at::Tensor Vgg::stage_forward(const Stage& stage, const at::Tensor& x) {
  at::Tensor y = x;
  if (stage.conv != nullptr) {
    y = stage.conv->forward(x);
    y = stage.norm ? stage.norm->forward_relu(y) : y.relu_();
  }
  for (int64_t i = 0; i < stage.halvings; ++i) {
    y = at::max_pool2d(y, /*kernel_size=*/2, /*stride=*/2);
  }
  return y;
}

at::Tensor Vgg::forward(const at::Tensor& input) const {
  at::Tensor x = input;
  for (const Stage& stage : features_) {
    const Module* changed = stage.conv.get();
    if (stage.norm) changed = stage.norm.get();
    x = run_block(stage.name, x, changed,
                  [&stage](const at::Tensor& below) { return stage_forward(stage, below); });
  }
  return run_block("classifier", [&] {
    at::Tensor y = at::adaptive_avg_pool2d(x, {kPooled, kPooled}).flatten(1);
    const bool training = classifier_part_->is_training();
    y = classifier_[0]->forward(y).relu_();
    y = dropout(y, shape_.dropout, site_id("classifier.2"), training);
    y = classifier_[1]->forward(y).relu_();
    y = dropout(y, shape_.dropout, site_id("classifier.5"), training);
    return classifier_[2]->forward(y);
  });
}

Task vgg_task(const ModelOptions& asked, const DataInfo& info) {
  const ModelOptions options = with_trained_width(asked, VggShape().outputs);
  auto shape = vgg_shape(options.size.empty() ? "vgg11" : options.size);
  if (!shape) throw_unknown_size(options.size, vgg_names());
  shape->in_channels = image_channels(info, "vgg", /*min_edge=*/32);
  shape->outputs = num_outputs(options, info);
  shape->dropout = options.dropout.value_or(shape->dropout);
  const auto model = std::make_shared<Vgg>(*shape);
  return supervised(
      model, [model](const at::Tensor& x) { return model->forward(with_channels(x)); }, options,
      info);
}

}  // namespace tanren
