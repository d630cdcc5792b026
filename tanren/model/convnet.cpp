#include "tanren/model/convnet.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/blocks/block.h"
#include "tanren/ops/dropout.h"

#include <ATen/ATen.h>

#include <fmt/ranges.h>

#include <algorithm>

namespace tanren {
namespace {

void check(const ModelOptions& options, const DataInfo& info) {
  if (info.input_shape.size() != 2 && info.input_shape.size() != 3) {
    throw ConfigError(
        fmt::format("[model] convnet needs images [channels, height, width] or "
                    "[height, width], inputs have shape [{}]; set data.train.shape",
                    fmt::join(info.input_shape, ", ")));
  }
  if (info.input_shape.size() == 3 && info.input_shape[0] == kAnySize) {
    throw ConfigError(
        "[model] convnet needs images of one number of channels, and this data's vary");
  }
  const bool positive = std::all_of(options.channels.begin(), options.channels.end(),
                                    [](int64_t channels) { return channels > 0; });
  if (options.channels.empty() || !positive) {
    throw ConfigError(fmt::format("[model] channels = [{}]: at least one stage, each of at least 1",
                                  fmt::join(options.channels, ", ")));
  }
}

}  // namespace

Convnet::Unit Convnet::make_unit(Module& owner, const std::string& suffix, const std::string& norm,
                                 const Conv2dOptions& options) {
  Unit unit;
  unit.conv = owner.register_module("conv" + suffix, std::make_shared<Conv2d>(options));
  unit.norm = make_norm(norm, options.out);
  if (unit.norm.module) owner.register_module("norm" + suffix, unit.norm.module);
  return unit;
}

Convnet::Convnet(const ModelOptions& options, const DataInfo& info)
    : Module("Convnet"),
      activation_(activation_named(options.activation)),
      dropout_(options.dropout.value_or(0)) {
  check(options, info);
  int64_t width = options.channels[0];
  const bool bias = options.norm == "none";
  const int64_t planes = info.input_shape.size() == 3 ? info.input_shape[0] : 1;
  const auto stem = register_module("stem", std::make_shared<Module>("Stem"));
  stem_ =
      make_unit(*stem, "", options.norm, {.in = planes, .out = width, .padding = 1, .bias = bias});
  const auto stages = register_module("stages", std::make_shared<Module>("Stages"));
  for (size_t i = 0; i < options.channels.size(); ++i) {
    const std::string index = to_text(i);
    const int64_t next = options.channels[i];
    const int64_t stride = i == 0 ? 1 : 2;
    Stage stage;
    stage.owner = stages->register_module(index, std::make_shared<Module>("Stage"));
    stage.name = "stages." + index;
    stage.first =
        make_unit(*stage.owner, "1", options.norm,
                  {.in = width, .out = next, .stride = stride, .padding = 1, .bias = bias});
    stage.second = make_unit(*stage.owner, "2", options.norm,
                             {.in = next, .out = next, .padding = 1, .bias = bias});
    if (stride != 1 || next != width) {
      stage.shortcut = stage.owner->register_module(
          "shortcut", std::make_shared<Conv2d>(Conv2dOptions{
                          .in = width, .out = next, .kernel = 1, .stride = stride, .bias = bias}));
    }
    stages_.push_back(std::move(stage));
    width = next;
  }
  head_ = register_module("head", std::make_shared<Linear>(width, info.outputs));
}

at::Tensor Convnet::stage_forward(const Stage& stage, const at::Tensor& x) const {
  const at::Tensor inner = stage.second(activation_(stage.first(x)));
  return activation_(inner + (stage.shortcut ? stage.shortcut->forward(x) : x));
}

at::Tensor Convnet::forward(const at::Tensor& input) const {
  at::Tensor x = input.dim() == 3 ? input.unsqueeze(1) : input;
  x = run_block("stem", [&] { return activation_(stem_(x)); });
  for (const Stage& stage : stages_) {
    x = run_block(stage.name, x, stage.owner.get(),
                  [this, &stage](const at::Tensor& below) { return stage_forward(stage, below); });
  }
  return run_block("head", [&] {
    constexpr uint64_t kSite = site_id("head");
    return head_->forward(dropout(x.mean({2, 3}), dropout_, kSite, head_->is_training()));
  });
}

}  // namespace tanren
