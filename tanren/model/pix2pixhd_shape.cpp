#include "tanren/model/pix2pixhd_shape.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/model/image_input.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace tanren {
namespace {

bool fits(const Pix2pixhdShape& shape, int64_t edge) {
  return edge >= shape.min_edge() && edge % shape.divisor() == 0;
}

// What is wrong with the size, and what to do; empty if it fits.
std::string misfit(const Pix2pixhdShape& shape, int64_t height, int64_t width) {
  if (fits(shape, height) && fits(shape, width)) return "";
  const int64_t divisor = shape.divisor();
  const auto nearest = [&](int64_t edge) {
    const int64_t down = edge / divisor * divisor;
    const int64_t least = (shape.min_edge() + divisor - 1) / divisor * divisor;
    return std::max(down, least);
  };
  std::string text = fmt::format(
      "pix2pixhd halves a picture {} times, so that height and width must be multiples of {}, at "
      "least {}; these have {} × {}; set data.train.size to {} × {}, for instance",
      shape.num_downsamplings + shape.num_enhancers, divisor, nearest(0), height, width,
      nearest(height), nearest(width));
  Pix2pixhdShape flatter = shape;
  while (flatter.num_downsamplings > 0) {
    --flatter.num_downsamplings;
    if (!fits(flatter, height) || !fits(flatter, width)) continue;
    return text + fmt::format(", or model.num_downsamplings = {}", flatter.num_downsamplings);
  }
  return text;
}

// Channels of the pictures to make. The data tells how many values a label has.
int64_t out_channels(const ModelOptions& options, const DataInfo& info, int64_t pixels) {
  if (info.class_labels) {
    throw ConfigError(
        "[model] pix2pixhd needs a picture as each sample's labels, the data has classes; set "
        "data.train.kind = \"pairs\", or another kind whose labels are values");
  }
  if (pixels < 0) {  // unknown
    if (options.outputs > 0) return options.outputs;
    throw ConfigError(
        "[model] pix2pixhd cannot see how many channels the pictures to make have, since this "
        "data's sizes vary; set model.outputs, 3 for colours");
  }
  if (info.outputs < pixels || info.outputs % pixels != 0) {
    throw ConfigError(fmt::format(
        "[model] pix2pixhd makes pictures as large as its inputs, of {} pixels, and labels have {} "
        "values; give pairs of pictures of the same size",
        pixels, info.outputs));
  }
  const int64_t channels = info.outputs / pixels;
  if (options.outputs > 0 && options.outputs != channels) {
    throw ConfigError(
        fmt::format("[model] outputs = {}, and the data's pictures have {} channels; set it to "
                    "that, or to 0",
                    options.outputs, channels));
  }
  return channels;
}

}  // namespace

int64_t Pix2pixhdShape::min_edge() const {
  constexpr int64_t kLastPadding = 3, kBlockPadding = 1;  // each needs one pixel more
  const int64_t outermost = kLastPadding + 1;
  // The global generator sees a picture that each enhancer has halved.
  const int64_t at_global = outermost << num_enhancers;
  const int64_t at_blocks = num_blocks > 0 ? (kBlockPadding + 1) * divisor() : 1;
  return std::max(at_global, at_blocks);
}

Pix2pixhdShape pix2pixhd_shape(const ModelOptions& options, const DataInfo& info) {
  Pix2pixhdShape shape{.generator_channels = options.generator_channels,
                       .num_downsamplings = options.num_downsamplings,
                       .num_blocks = options.num_blocks,
                       .num_enhancers = options.size == "local" ? options.num_enhancers : 0,
                       .enhancer_blocks = options.enhancer_blocks,
                       .discriminators = options.discriminators,
                       .discriminator_channels = options.discriminator_channels,
                       .discriminator_layers = options.discriminator_layers};
  if (!options.size.empty() && options.size != "global" && options.size != "local") {
    throw_unknown_size(options.size, {"global", "local"});
  }
  shape.in_channels = image_channels(info, "pix2pixhd", /*min_edge=*/1);
  const int64_t height = info.input_shape[info.input_shape.size() - 2];
  const int64_t width = info.input_shape.back();
  const bool varies = height == kAnySize || width == kAnySize;
  shape.out_channels = out_channels(options, info, varies ? -1 : height * width);
  const std::string wrong = varies ? "" : misfit(shape, height, width);
  if (!wrong.empty()) throw ConfigError("[model] " + wrong);
  return shape;
}

void check_pictures(const Pix2pixhdShape& shape, int64_t height, int64_t width) {
  const std::string wrong = misfit(shape, height, width);
  if (!wrong.empty()) throw DataError("[data] " + wrong);
}

}  // namespace tanren
