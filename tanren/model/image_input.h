// Config checks that the image models share: the shape of the data's images and the preset's name.
// Called by resnet and vgg.
#pragma once

#include "tanren/base/data_info.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

// Channels of the data's images, of shape [channels, height, width] or [height, width]. ConfigError
// naming the model `kind` for inputs of another shape, or with an edge below `min_edge`.
int64_t image_channels(const DataInfo& info, const std::string& kind, int64_t min_edge);

// [n, h, w] → [n, 1, h, w]; any other x is returned as it is.
at::Tensor with_channels(const at::Tensor& x);

// Throws the ConfigError for a model.size that is not in `known`. The message names the nearest
// one.
[[noreturn]] void throw_unknown_size(const std::string& size,
                                     const std::vector<std::string>& known);

}  // namespace tanren
