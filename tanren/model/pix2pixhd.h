// Pix2PixHD (Wang et al., 2018): translates pictures into pictures. It has a generator and PatchGAN
// discriminators, with the names and losses of NVIDIA's code. One forward serves both objectives,
// and the discriminators see the generated pictures once in it. The backward of an objective adds
// to the gradients of that objective's parameters only.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/base/task.h"
#include "tanren/config/run_config.h"
#include "tanren/model/pix2pixhd_networks.h"

#include <memory>

namespace tanren {

// Modules `generator` and, unless there are none, `discriminator`.
class Pix2pixhd : public Module {
 public:
  explicit Pix2pixhd(const Pix2pixhdShape& shape);
  const PictureGenerator& generator() const { return *generator_; }
  const PatchDiscriminators* discriminator() const { return discriminator_.get(); }
  const Pix2pixhdShape& shape() const { return shape_; }

 private:
  Pix2pixhdShape shape_;
  std::shared_ptr<PictureGenerator> generator_;
  std::shared_ptr<PatchDiscriminators> discriminator_;  // null if there are none
};

// The task of model.kind = "pix2pixhd": batches with pictures "inputs" [n, c, h, w] and "labels"
// [n, c', h, w], the pictures to make. Objective generator has the terms gan (discriminators score
// the made picture as real, weight 1), feature (distance of discriminator features, weight 10), l1
// (weight 0, or 1 without discriminators) and, with model.perceptual, perceptual (weight 10).
// Objective discriminator has the terms real and fake (weight 0.5 each). All are means within a
// sample. Throws the ConfigErrors of pix2pixhd_shape.
Task pix2pixhd_task(const ModelOptions& options, const DataInfo& info);

}  // namespace tanren
