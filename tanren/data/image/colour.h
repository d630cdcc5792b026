// Loops over the colour planes of one image, values in [0, 255]: what colour jitter and normalisation
// are made of. Planes lie one behind the other, `pixels` floats each. Torch-free.
#pragma once

#include <cstdint>

namespace tanren {

// Each as the function of that name (adjust_…) in torchvision, but without its rounding to 8 bits.
void change_brightness(float* values, int64_t count, float factor);
// Towards or away from the mean luma of the image; of the only plane where `colours` is 1.
void change_contrast(float* planes, int64_t colours, int64_t pixels, float factor);
void change_saturation(float* planes, int64_t pixels, float factor);  // of three planes
// Turns the hue by `turn` full circles, in [-0.5, 0.5], of three planes.
void change_hue(float* planes, int64_t pixels, float turn);

// value * scale + shift, in place.
void scale_and_shift(float* values, int64_t count, float scale, float shift);

}  // namespace tanren
