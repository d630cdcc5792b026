// im2col of channels-last images: the patches that a kernel sees, a row for each place of its output.
// Plain memory; the file is compiled for speed. Called by convolution.cpp alone.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace tanren {

struct Patches {
  int64_t height, width, channels;  // of the images, [n, height, width, channels]
  int64_t kernel, stride, padding;
  int64_t out_height, out_width;
};

// columns [n · out_height · out_width, kernel · kernel · channels] for the rows of output
// [begin, end) of n · out_height; zeros where a patch leaves the image.
void image_columns(const Patches& shape, const c10::BFloat16* images, int64_t begin, int64_t end,
                   c10::BFloat16* columns);

}  // namespace tanren
