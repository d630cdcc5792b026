// The networks of Pix2PixHD (Wang et al., 2018): generators and discriminators, with the names and
// the initialisation of NVIDIA's code, so that its files load by name. Every sample is computed by
// itself: the norms are instance norms. Modules are not thread-safe.
#pragma once

#include "tanren/model/layers.h"
#include "tanren/model/pix2pixhd_shape.h"

#include <memory>
#include <string>
#include <vector>

namespace tanren {

// Blocks one after the other. A block's modules have the indices that they have in NVIDIA's
// Sequential, in which paddings, norms and activations count.
class PictureBlocks {
 public:
  PictureBlocks() = default;
  // Adds the modules to `parent` as `name`. A block's name is path.name.index, with the index of
  // its first module that has parameters.
  PictureBlocks(Module& parent, const std::string& name, const std::string& path);

  void widen(int64_t in, int64_t out);     // 7 × 7 with mirrored borders, norm, relu
  void halve(int64_t in, int64_t out);     // stride 2, norm, relu
  void residual(int64_t channels);         // x + two convolutions with norms
  void redouble(int64_t in, int64_t out);  // transposed convolution, norm, relu
  void paint(int64_t in, int64_t out);     // 7 × 7 with mirrored borders, tanh

  at::Tensor forward(at::Tensor x) const;

 private:
  enum class Kind { widen, halve, residual, redouble, paint };
  struct Block {
    Kind kind;
    std::string name;
    std::shared_ptr<Conv2d> first, second;  // the second of a residual block
    std::shared_ptr<ConvTranspose2d> up;
  };
  Block& add(Kind kind, int64_t before, int64_t modules);
  static at::Tensor block_forward(const Block& block, const at::Tensor& x);

  std::shared_ptr<Module> owner_;
  std::string path_;
  int64_t next_ = 0;  // index of the next module
  std::vector<Block> blocks_;
};

// [n, in_channels, h, w] → [n, out_channels, h, w] in (-1, 1). With enhancers it is NVIDIA's
// LocalEnhancer: the global generator sees a smaller picture and gives its last features, to which
// each enhancer adds those of twice the resolution.
class PictureGenerator : public Module {
 public:
  PictureGenerator(const Pix2pixhdShape& shape, const std::string& path);
  at::Tensor forward(const at::Tensor& pictures) const;

 private:
  struct Enhancer {
    PictureBlocks down, up;
  };
  std::string path_;  // names the block of its sums
  PictureBlocks global_;
  std::vector<Enhancer> enhancers_;  // the innermost first
};

// Outputs of each layer of one scale. The last output has the patches' scores, [n, 1, h', w'].
using ScaleFeatures = std::vector<at::Tensor>;

// PatchGAN discriminators of several scales. The first reads the pictures at full resolution, each
// other at half the resolution of the one before.
class PatchDiscriminators : public Module {
 public:
  PatchDiscriminators(const Pix2pixhdShape& shape, const std::string& path);
  // Inputs [n, in_channels, h, w] and pictures [n, out_channels, h, w], side by side → features by
  // scale.
  std::vector<ScaleFeatures> forward(const at::Tensor& inputs, const at::Tensor& pictures) const;

 private:
  struct Layer {
    std::string name;
    std::shared_ptr<Module> owner;
    std::shared_ptr<Conv2d> conv;
    bool has_norm = false, is_last = false;
  };
  static at::Tensor layer_forward(const Layer& layer, const at::Tensor& x);

  std::string path_;                        // names the blocks that make the layers' inputs
  std::vector<std::vector<Layer>> scales_;  // the full resolution first
};

}  // namespace tanren
