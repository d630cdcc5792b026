// im2col of channels-last images: the patches that a kernel sees, one row per output position.
// Plain memory; the file is compiled for speed. Called by convolution.cpp alone.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace tanren {

struct Patches {
  int64_t height, width, channels;  // images are [n, height, width, channels]
  int64_t kernel, stride, padding;
  int64_t out_height, out_width;
};

// Fills columns [n · out_height · out_width, kernel · kernel · channels] for the output rows
// [begin, end) of n · out_height; zeros where a patch leaves the image.
void image_columns(const Patches& shape, const c10::BFloat16* images, int64_t begin, int64_t end,
                   c10::BFloat16* columns);

}  // namespace tanren
