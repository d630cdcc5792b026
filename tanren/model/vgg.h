// VGG networks for images (Simonyan & Zisserman, 2014), as torchvision builds them: its parameter
// names, initialisation (the same values from the same generator state) and numerics. Dropout is
// counter-based.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/base/task.h"
#include "tanren/config/run_config.h"
#include "tanren/model/layers.h"

#include <optional>
#include <string_view>
#include <vector>

namespace tanren {

struct VggShape {
  std::vector<int64_t> channels;  // of the convolutions in order; 0: halve the image
  bool batch_norm = false;
  int64_t in_channels = 3;
  int64_t outputs = 1000;
  double dropout = 0.5;
};

// vgg11, vgg13, vgg16, vgg19, each also with _bn; nothing for another name.
std::optional<VggShape> vgg_shape(std::string_view name);
std::vector<std::string> vgg_names();

class Vgg : public Module {
 public:
  explicit Vgg(const VggShape& shape);
  // [n, in_channels, h, w] → [n, outputs]; h and w at least 32.
  at::Tensor forward(const at::Tensor& input) const;
  const VggShape& shape() const { return shape_; }

 private:
  struct Stage {  // a block
    std::string name;
    std::shared_ptr<Conv2d> conv = nullptr;  // null: it halves the image, and no more
    std::shared_ptr<BatchNorm2d> norm = nullptr;
    int64_t halvings = 0;  // of the image, after the convolution
  };
  static at::Tensor stage_forward(const Stage& stage, const at::Tensor& x);

  VggShape shape_;
  std::vector<Stage> features_;
  std::shared_ptr<Module> classifier_part_;
  std::vector<std::shared_ptr<Linear>> classifier_;
};

// The task of model.kind = "vgg": images, classes or values as supervised(). model.size is one of
// vgg_names(), vgg11 if empty. model.dropout is 0.5 if unset. ConfigError for another size, inputs
// that are not images, or images below 32 × 32.
Task vgg_task(const ModelOptions& asked, const DataInfo& info);

}  // namespace tanren
