// PerceptualLoss: how far two pictures are from each other in the features of a trained vgg19
// (Johnson et al., 2016), as NVIDIA's Pix2PixHD weighs them. Its weights are constants: they come
// from a file at each start, belong to no module and no checkpoint, and get no gradient. Not
// thread-safe.
#pragma once

#include "tanren/base/terms.h"
#include "tanren/model/layers.h"

#include <filesystem>
#include <memory>
#include <vector>

namespace tanren {

class PerceptualLoss {
 public:
  // `file` is torchvision's state_dict of vgg19 (.pth of torch.save, or .safetensors).
  // CheckpointError naming the file for a tensor that is missing or of another shape. In a dry run
  // the file is not read.
  explicit PerceptualLoss(const std::filesystem::path& file);

  // Term "perceptual" of pictures [n, 3, h, w], h and w at least 16: absolute differences of the
  // features after relu1_1, 2_1, 3_1, 4_1 and 5_1, weighted 1/32, 1/16, 1/8, 1/4 and 1. Pictures
  // enter as they are, in [-1, 1]. Only `made` gets gradients.
  Term operator()(const at::Tensor& made, const at::Tensor& real);

 private:
  struct Layer {
    std::shared_ptr<Conv2d> conv;  // null: halve the picture
    bool ends_slice = false;       // its features are compared
  };
  std::vector<at::Tensor> features(at::Tensor x) const;
  void follow(const at::Tensor& pictures);

  std::vector<Layer> layers_;
};

}  // namespace tanren
