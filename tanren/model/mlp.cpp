#include "tanren/model/mlp.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/blocks/block.h"
#include "tanren/ops/dropout.h"

#include <ATen/ATen.h>

#include <fmt/ranges.h>

#include <algorithm>

namespace tanren {

Mlp::Mlp(const ModelOptions& options, const DataInfo& info)
    : Module("Mlp"),
      activation_(activation_named(options.activation)),
      dropout_(options.dropout.value_or(0)) {
  const auto& shape = info.input_shape;
  if (std::find(shape.begin(), shape.end(), kAnySize) != shape.end()) {
    throw ConfigError(
        fmt::format("[model] mlp flattens inputs of one size, and those of this data vary (shape "
                    "[{}]); pad them, or take another model",
                    fmt::join(shape, ", ")));
  }
  int64_t width = c10::multiply_integers(info.input_shape);
  const auto layers = register_module("hidden", std::make_shared<Module>("Hidden"));
  for (const int64_t next : options.hidden) {
    if (next < 1) {
      throw ConfigError(fmt::format("[model] hidden = [{}]: widths must be at least 1",
                                    fmt::join(options.hidden, ", ")));
    }
    const std::string index = to_text(hidden_.size());
    const std::string name = "hidden." + index;
    hidden_.push_back({name, site_id(name),
                       layers->register_module(index, std::make_shared<Linear>(width, next))});
    width = next;
  }
  head_ = register_module("head", std::make_shared<Linear>(width, info.outputs));
}

at::Tensor Mlp::forward(const at::Tensor& input) const {
  at::Tensor x = input.dim() == 2 ? input : input.reshape({input.size(0), -1});
  for (const Hidden& layer : hidden_) {
    x = run_block(layer.name, x, [this, &layer](const at::Tensor& below) {
      return dropout(activation_(layer.linear->forward(below)), dropout_, layer.site,
                     layer.linear->is_training());
    });
  }
  return run_block("head", [&] { return head_->forward(x); });
}

}  // namespace tanren
