// Loops over the colour planes of one image, values in [0, 255], for colour jitter and
// normalisation. Planes follow each other in memory, `pixels` floats each. Torch-free.
#pragma once

#include <cstdint>

namespace tanren {

// Each does what torchvision's function of that name (adjust_…) does, but without its rounding to 8
// bits.
void change_brightness(float* values, int64_t count, float factor);
// Moves values towards or away from the mean luma of the image; with `colours` 1, from the mean of
// the only plane.
void change_contrast(float* planes, int64_t colours, int64_t pixels, float factor);
void change_saturation(float* planes, int64_t pixels, float factor);  // of three planes
// Turns the hue of three planes by `turn` full circles, in [-0.5, 0.5].
void change_hue(float* planes, int64_t pixels, float turn);

// value * scale + shift, in place.
void scale_and_shift(float* values, int64_t count, float scale, float shift);

}  // namespace tanren
