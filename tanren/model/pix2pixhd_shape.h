// The sizes of a Pix2PixHD (Wang et al., 2018), from config and data. Called by the networks and
// the task of pix2pixhd.h.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/config/run_config.h"

#include <cstdint>

namespace tanren {

struct Pix2pixhdShape {
  int64_t in_channels = 3;   // of the pictures that are translated
  int64_t out_channels = 3;  // of those that are made
  int64_t generator_channels = 64;
  int64_t num_downsamplings = 4;
  int64_t num_blocks = 9;
  int64_t num_enhancers = 0;  // 0: the global generator alone
  int64_t enhancer_blocks = 3;
  int64_t discriminators = 2;
  int64_t discriminator_channels = 64;
  int64_t discriminator_layers = 3;

  // Height and width are multiples of it: how much smaller they are at the coarsest level.
  int64_t divisor() const { return int64_t{1} << (num_downsamplings + num_enhancers); }
  // The smallest edge: at the coarsest level a picture is padded by mirrored pixels.
  int64_t min_edge() const;
};

// ConfigError if the data are not pairs of pictures of one size, or if this size does not divide.
Pix2pixhdShape pix2pixhd_shape(const ModelOptions& options, const DataInfo& info);

// DataError for pictures that the model does not take; the dataset does not know the size of all.
void check_pictures(const Pix2pixhdShape& shape, int64_t height, int64_t width);

}  // namespace tanren
