#include "tanren/data/image/colour.h"

#include <algorithm>
#include <cmath>

namespace tanren {

namespace {

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TANREN_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define TANREN_CLONES
#endif

constexpr float kRed = 0.299F, kGreen = 0.587F, kBlue = 0.114F;

inline float clamped(float value) { return std::min(std::max(value, 0.0F), 255.0F); }

}  // namespace

TANREN_CLONES void change_brightness(float* values, int64_t count, float factor) {
  for (int64_t i = 0; i < count; ++i) values[i] = clamped(values[i] * factor);
}

TANREN_CLONES void change_contrast(float* planes, int64_t colours, int64_t pixels, float factor) {
  double sum = 0;
  for (int64_t i = 0; i < pixels; ++i) {
    sum += colours == 1
               ? planes[i]
               : kRed * planes[i] + kGreen * planes[i + pixels] + kBlue * planes[i + 2 * pixels];
  }
  const auto mean = static_cast<float>(sum / static_cast<double>(pixels));
  for (int64_t i = 0; i < colours * pixels; ++i) {
    planes[i] = clamped(mean + factor * (planes[i] - mean));
  }
}

TANREN_CLONES void change_saturation(float* planes, int64_t pixels, float factor) {
  float* __restrict r = planes;
  float* __restrict g = planes + pixels;
  float* __restrict b = planes + 2 * pixels;
  for (int64_t i = 0; i < pixels; ++i) {
    const float grey = kRed * r[i] + kGreen * g[i] + kBlue * b[i];
    r[i] = clamped(grey + factor * (r[i] - grey));
    g[i] = clamped(grey + factor * (g[i] - grey));
    b[i] = clamped(grey + factor * (b[i] - grey));
  }
}

// HSV without branches: with hue h in sixths of a circle, a colour is v - c * clamp(min(k, 4 - k)),
// k = (n + h) mod 6 and n = 5, 3, 1 for red, green, blue.
TANREN_CLONES void change_hue(float* planes, int64_t pixels, float turn) {
  float* __restrict r = planes;
  float* __restrict g = planes + pixels;
  float* __restrict b = planes + 2 * pixels;
  for (int64_t i = 0; i < pixels; ++i) {
    const float high = std::max(r[i], std::max(g[i], b[i]));
    const float chroma = high - std::min(r[i], std::min(g[i], b[i]));
    const float part = 1 / std::max(chroma, 1e-6F);  // a grey has no hue
    const float in_red = (g[i] - b[i]) * part;
    const float in_green = (b[i] - r[i]) * part + 2;
    const float in_blue = (r[i] - g[i]) * part + 4;
    const float hue = (high == r[i] ? in_red : high == g[i] ? in_green : in_blue) + 6 * turn;
    const auto colour = [&](float n) {
      const float shifted = n + hue;
      const float k = shifted - 6 * std::floor(shifted * (1 / 6.0F));
      return high - chroma * std::min(std::max(std::min(k, 4 - k), 0.0F), 1.0F);
    };
    r[i] = colour(5);
    g[i] = colour(3);
    b[i] = colour(1);
  }
}

TANREN_CLONES void scale_and_shift(float* values, int64_t count, float scale, float shift) {
  for (int64_t i = 0; i < count; ++i) values[i] = values[i] * scale + shift;
}

}  // namespace tanren
