// What happens to an image between file and batch: crop, turning, flip, colour, normalisation.
// Evaluation draws nothing. Training draws from Philox keyed by (seed, epoch, sample), so workers,
// batches and resume cannot change a pixel. Thread-safe.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/data/image/header.h"
#include "tanren/data/image/resize.h"

#include <array>
#include <cstdint>
#include <vector>

namespace tanren {

// The draws of one sample in one epoch, each named by its site.
class SampleRandom {
 public:
  SampleRandom(uint64_t seed, int64_t epoch, int64_t sample);
  // Four numbers in [0, 1).
  std::array<double, 4> uniforms(uint32_t site) const;

 private:
  std::array<uint32_t, 2> key_;
  uint64_t sample_;
};

// A crop in pixels of the image as shown (after its EXIF turn), and whether it is mirrored.
struct View {
  Axis x, y;
  bool flip = false;
};

// torchvision's Resize(resize), CenterCrop(size); with `resize` 0 the smallest that covers the crop;
// the whole image squeezed to `size` where crop is "none".
View evaluation_view(const SourceOptions& options, int64_t width, int64_t height);
// As asked by `crop` and `flip`: "random" is torchvision's RandomResizedCrop, "shift" the evaluation's
// resize with `pad` black pixels around it and a crop somewhere in that.
View training_view(const SourceOptions& options, int64_t width, int64_t height,
                   const SampleRandom& random);

// A view laid on the image as it is stored, and where its outputs go in planes of size.
struct StoredView {
  Axis x, y;
  PlaneTarget target;
};
StoredView stored_view(const View& view, const ImageHeader& header, float* planes);

// The largest divisor of 1, 2, 4, 8 that leaves every output of the view a pixel of its own.
int64_t training_divisor(const StoredView& view, const ImageHeader& header);

// torchvision's ColorJitter(*options.color) on planes of [0, 255], in an order that is drawn too.
void jitter(const SourceOptions& options, const SampleRandom& random, float* planes,
            int64_t pixels);
// [0, 255] → (value / 255 - mean) / std.
void normalise(const SourceOptions& options, float* planes, int64_t pixels);

// {height, width} of options.size, of which one number is a square.
std::array<int64_t, 2> image_size(const SourceOptions& options);

}  // namespace tanren
