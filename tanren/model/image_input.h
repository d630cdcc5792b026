// What the image models share: whether the data holds images that fit, and which preset is meant.
// Called by resnet and vgg when a config asks for them.
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

// [n, h, w] → [n, 1, h, w]; else x itself.
at::Tensor with_channels(const at::Tensor& x);

// ConfigError saying that model.size `size` is none of `known`, and which is near.
[[noreturn]] void throw_unknown_size(const std::string& size,
                                     const std::vector<std::string>& known);

}  // namespace tanren
