// Residual networks for images (He et al., 2015) with torchvision's parameter names, initialisation
// (the same values from the same generator state) and numerics, so that weights can be loaded in
// both directions.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/base/task.h"
#include "tanren/config/run_config.h"
#include "tanren/model/layers.h"

#include <array>
#include <optional>
#include <string_view>
#include <vector>

namespace tanren {

struct ResnetShape {
  std::array<int64_t, 4> blocks = {2, 2, 2, 2};  // per stage
  bool bottleneck = false;                       // 1×1, 3×3, 1×1 with 4 times the channels
  int64_t in_channels = 3;
  int64_t outputs = 1000;
};

// resnet18, resnet34, resnet50, resnet101, resnet152; nothing for another name.
std::optional<ResnetShape> resnet_shape(std::string_view name);
std::vector<std::string> resnet_names();

class Resnet : public Module {
 public:
  explicit Resnet(const ResnetShape& shape);
  // [n, in_channels, h, w] → [n, outputs].
  at::Tensor forward(const at::Tensor& input) const;

 private:
  // A convolution and its batch norm.
  struct Unit {
    std::shared_ptr<Conv2d> conv;
    std::shared_ptr<BatchNorm2d> norm;
    at::Tensor operator()(const at::Tensor& x) const { return norm->forward(conv->forward(x)); }
    at::Tensor with_relu(const at::Tensor& x, const at::Tensor& residual = {}) const {
      return norm->forward_relu(conv->forward(x), residual);
    }
  };
  struct Block {
    std::string name;
    std::shared_ptr<Module> owner;  // holds the modules below
    std::vector<Unit> units;
    std::optional<Unit> downsample;  // set if the shortcut must change size or channels
  };

  Block make_block(Module& stage, const std::string& stage_name, int64_t index, int64_t in,
                   int64_t width, int64_t stride) const;
  static at::Tensor block_forward(const Block& block, const at::Tensor& x);

  ResnetShape shape_;
  Unit stem_;
  std::vector<Block> blocks_;
  std::shared_ptr<Linear> head_;
};

// The task of model.kind = "resnet": images, classes or values as supervised(). model.size is one
// of resnet_names(), resnet18 if empty. ConfigError for another size or inputs that are not images.
Task resnet_task(const ModelOptions& asked, const DataInfo& info);

}  // namespace tanren
