// convnet: a small residual network for images [c, h, w] or [h, w], from 8×8 to 64×64: a 3×3 stem,
// one residual block of two 3×3 convolutions per entry of options.channels (each but the first
// halves the image), global average, dropout, linear head (He et al., 2015).
// Parameters: `stem.conv.weight`, `stages.0.conv1.weight`, `stages.0.norm1.weight`, `head.bias`, ….
#pragma once

#include "tanren/model/layers.h"

#include "tanren/base/data_info.h"
#include "tanren/config/run_config.h"

namespace tanren {

class Convnet : public Module {
 public:
  // The model has `info.outputs` outputs. ConfigError for inputs that are not images, for empty or
  // non-positive channels, and for unknown names.
  Convnet(const ModelOptions& options, const DataInfo& info);
  at::Tensor forward(const at::Tensor& input) const;

 private:
  // A convolution and its norm; the convolution has a bias only if there is no norm.
  struct Unit {
    std::shared_ptr<Conv2d> conv;
    Norm norm;
    at::Tensor operator()(const at::Tensor& x) const { return norm.forward(conv->forward(x)); }
  };
  struct Stage {
    std::string name;
    std::shared_ptr<Module> owner;  // holds the modules below
    Unit first, second;
    std::shared_ptr<Conv2d> shortcut;  // null if the input already has the right shape
  };

  static Unit make_unit(Module& owner, const std::string& suffix, const std::string& norm,
                        const Conv2dOptions& options);
  at::Tensor stage_forward(const Stage& stage, const at::Tensor& x) const;

  Activation activation_;
  double dropout_;
  Unit stem_;
  std::vector<Stage> stages_;
  std::shared_ptr<Linear> head_;
};

}  // namespace tanren
