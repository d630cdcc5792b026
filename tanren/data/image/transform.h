// Processing of an image between file and batch: crop, turn, flip, colour, normalisation.
// Evaluation draws no random numbers. Training draws from Philox keyed by (seed, epoch, sample), so
// workers, batches and resume cannot change a pixel. Thread-safe.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/data/image/header.h"
#include "tanren/data/image/resize.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

// The random numbers of one sample in one epoch. A site names each draw.
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

// torchvision's Resize(resize) and CenterCrop(size). With `resize` 0, the image is resized to the
// smallest size that covers the crop. With crop "none", the whole image is squeezed to `size`.
View evaluation_view(const SourceOptions& options, int64_t width, int64_t height);
// The view that `crop` and `flip` ask for. "random" is torchvision's RandomResizedCrop; "shift" is
// the resize of evaluation with `pad` black pixels around it and a crop at a random place.
View training_view(const SourceOptions& options, int64_t width, int64_t height,
                   const SampleRandom& random);

// A view in pixels of the image as stored, and where its outputs go in planes of the crop's size.
struct StoredView {
  Axis x, y;
  PlaneTarget target;
};
StoredView stored_view(const View& view, const ImageHeader& header, float* planes);

// The largest of the divisors 1, 2, 4, 8 that leaves each output of the view at least one pixel.
int64_t training_divisor(const StoredView& view, const ImageHeader& header);

// torchvision's ColorJitter(*options.color) on planes of [0, 255], in a random order.
void jitter(const SourceOptions& options, const SampleRandom& random, float* planes,
            int64_t pixels);
// [0, 255] → (value / 255 - mean) / std.
void normalise(const SourceOptions& options, float* planes, int64_t pixels);

// [0, 255] → [-1, 1].
void to_minus_one_to_one(float* planes, int64_t count);

// The filter that data.*.filter names.
Filter filter_named(const std::string& name);

// {height, width} of options.size; a single number there means a square.
std::array<int64_t, 2> image_size(const SourceOptions& options);

}  // namespace tanren
