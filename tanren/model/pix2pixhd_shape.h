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

  // Height and width must be multiples of this. They are this many times smaller at the coarsest
  // level.
  int64_t divisor() const { return int64_t{1} << (num_downsamplings + num_enhancers); }
  // The smallest height and width, because padding mirrors pixels and needs enough of them.
  int64_t min_edge() const;
};

// ConfigError for an unknown model.size, if the data are not pairs of pictures of the same size, or
// if their size is too small or not a multiple of divisor().
Pix2pixhdShape pix2pixhd_shape(const ModelOptions& options, const DataInfo& info);

// DataError if the model cannot take pictures of this size. Checked per batch, because a dataset
// may not know the sizes of all its pictures.
void check_pictures(const Pix2pixhdShape& shape, int64_t height, int64_t width);

}  // namespace tanren
