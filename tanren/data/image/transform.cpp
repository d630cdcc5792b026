#include "tanren/data/image/transform.h"

#include "tanren/base/random.h"
#include "tanren/data/image/colour.h"

#include <algorithm>
#include <cmath>

namespace tanren {

namespace {

// Sites of the draws. The first kTries are the attempts at a random crop.
constexpr uint32_t kTries = 10;
constexpr uint32_t kFlip = 16, kColour = 17, kColourOrder = 18, kShift = 19;

double between(double low, double high, double uniform) { return low + (high - low) * uniform; }

// A whole number in [0, count).
int64_t one_of(int64_t count, double uniform) {
  return std::min(static_cast<int64_t>(uniform * static_cast<double>(count)), count - 1);
}

int64_t rounded(double value) { return static_cast<int64_t>(std::nearbyint(value)); }

// {width, height} that the image is resized to before a crop of `size` is cut from it.
std::array<int64_t, 2> resized(const SourceOptions& options, int64_t width, int64_t height) {
  const auto [crop_height, crop_width] = image_size(options);
  bool by_width = width <= height;
  int64_t shorter = options.resize;
  if (options.resize == 0) {
    by_width = crop_width * height >= crop_height * width;
    shorter = by_width ? crop_width : crop_height;
  }
  const int64_t longer = by_width ? shorter * height / width : shorter * width / height;
  return by_width ? std::array{shorter, longer} : std::array{longer, shorter};
}

// Resizes `inputs` pixels to `resized` and crops `outputs` of these at `offset`.
Axis cut(int64_t inputs, int64_t resized, int64_t offset, int64_t outputs) {
  const double step = static_cast<double>(inputs) / static_cast<double>(resized);
  return {outputs, static_cast<double>(offset) * step, step, 0, inputs};
}

// Resizes the inputs [begin, begin + count) to `outputs`, without using pixels beyond them.
Axis part(int64_t begin, int64_t count, int64_t outputs) {
  return {outputs, static_cast<double>(begin),
          static_cast<double>(count) / static_cast<double>(outputs), begin, begin + count};
}

struct Box {
  int64_t x, y, width, height;
};

// torchvision's RandomResizedCrop.get_params.
Box random_box(const SourceOptions& options, int64_t width, int64_t height,
               const SampleRandom& random) {
  const double area = static_cast<double>(width) * static_cast<double>(height);
  const double low = std::log(options.crop_ratio[0]), high = std::log(options.crop_ratio[1]);
  for (uint32_t attempt = 0; attempt < kTries; ++attempt) {
    const auto draw = random.uniforms(attempt);
    const double wanted = area * between(options.crop_scale[0], options.crop_scale[1], draw[0]);
    const double aspect = std::exp(between(low, high, draw[1]));
    const int64_t w = rounded(std::sqrt(wanted * aspect)), h = rounded(std::sqrt(wanted / aspect));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    return {one_of(width - w + 1, draw[2]), one_of(height - h + 1, draw[3]), w, h};
  }
  const double aspect = static_cast<double>(width) / static_cast<double>(height);
  int64_t w = width, h = height;
  if (aspect < options.crop_ratio[0]) {
    h = std::clamp<int64_t>(rounded(static_cast<double>(w) / options.crop_ratio[0]), 1, height);
  } else if (aspect > options.crop_ratio[1]) {
    w = std::clamp<int64_t>(rounded(static_cast<double>(h) * options.crop_ratio[1]), 1, width);
  }
  return {(width - w) / 2, (height - h) / 2, w, h};
}

}  // namespace

SampleRandom::SampleRandom(uint64_t seed, int64_t epoch, int64_t sample)
    : sample_(static_cast<uint64_t>(sample)) {
  constexpr uint64_t kImages = 0x696d61676573;  // a stream separate from orders and dropout
  const uint64_t bits = random_bits(seed, kImages, static_cast<uint64_t>(epoch));
  key_ = {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)};
}

std::array<double, 4> SampleRandom::uniforms(uint32_t site) const {
  const auto block =
      philox({static_cast<uint32_t>(sample_), static_cast<uint32_t>(sample_ >> 32), site, 0}, key_);
  std::array<double, 4> values{};
  for (size_t i = 0; i < 4; ++i) values[i] = block[i] * 0x1p-32;
  return values;
}

std::array<int64_t, 2> image_size(const SourceOptions& options) {
  return {options.size.front(), options.size.back()};
}

View evaluation_view(const SourceOptions& options, int64_t width, int64_t height) {
  const auto [rows, columns] = image_size(options);
  if (options.crop == "none") return {part(0, width, columns), part(0, height, rows)};
  const auto [w, h] = resized(options, width, height);
  // Half of an odd margin is rounded to even, as torchvision does with Python's round().
  const int64_t left = rounded(static_cast<double>(w - columns) / 2);
  const int64_t top = rounded(static_cast<double>(h - rows) / 2);
  return {cut(width, w, left, columns), cut(height, h, top, rows)};
}

View training_view(const SourceOptions& options, int64_t width, int64_t height,
                   const SampleRandom& random) {
  const auto [rows, columns] = image_size(options);
  View view;
  if (options.crop == "random") {
    const Box box = random_box(options, width, height, random);
    view = {part(box.x, box.width, columns), part(box.y, box.height, rows)};
  } else if (options.crop == "shift") {
    const auto [w, h] = resized(options, width, height);
    const auto draw = random.uniforms(kShift);
    const int64_t left = one_of(w + 2 * options.pad - columns + 1, draw[0]) - options.pad;
    const int64_t top = one_of(h + 2 * options.pad - rows + 1, draw[1]) - options.pad;
    view = {cut(width, w, left, columns), cut(height, h, top, rows)};
  } else {
    view = evaluation_view(options, width, height);
  }
  view.flip = options.flip > 0 && random.uniforms(kFlip)[0] < options.flip;
  return view;
}

StoredView stored_view(const View& view, const ImageHeader& header, float* planes) {
  const int turn = header.orientation;
  const bool mirror_x = turn == 2 || turn == 3 || turn == 6 || turn == 7;
  const bool mirror_y = turn == 3 || turn == 4 || turn == 7 || turn == 8;
  // Axes along the shown directions; the stored directions are the same or exchanged.
  const Axis shown_x = mirror_x ? view.x.mirrored(header.shown_width()) : view.x;
  const Axis shown_y = mirror_y ? view.y.mirrored(header.shown_height()) : view.y;
  const int64_t columns = view.x.outputs, rows = view.y.outputs;
  const bool backwards = mirror_x != view.flip;
  const int64_t along_x = backwards ? -1 : 1, along_y = mirror_y ? -columns : columns;
  PlaneTarget target{planes, rows * columns, 0, along_x, along_y};
  if (backwards) target.start += columns - 1;
  if (mirror_y) target.start += (rows - 1) * columns;
  if (!header.turned()) return {shown_x, shown_y, target};
  std::swap(target.step_x, target.step_y);
  return {shown_y, shown_x, target};
}

int64_t training_divisor(const StoredView& view, const ImageHeader& header) {
  if (header.format != ImageHeader::Format::jpeg) return 1;
  const double step = std::min(view.x.step, view.y.step);
  for (const int64_t divisor : {8, 4, 2}) {
    if (step >= static_cast<double>(divisor)) return divisor;
  }
  return 1;
}

void jitter(const SourceOptions& options, const SampleRandom& random, float* planes,
            int64_t pixels) {
  if (options.color.empty()) return;
  const auto draw = random.uniforms(kColour);
  const auto order_draw = random.uniforms(kColourOrder);
  std::array<size_t, 4> order = {0, 1, 2, 3};
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return order_draw[a] < order_draw[b]; });
  const int64_t colours = options.channels;
  for (const size_t what : order) {
    const double reach = options.color[what];
    if (reach == 0) continue;
    constexpr size_t kHue = 3;
    const double low = what == kHue ? -reach : std::max(1 - reach, 0.0);
    const auto amount =
        static_cast<float>(between(low, what == kHue ? reach : 1 + reach, draw[what]));
    if (what == 0) change_brightness(planes, colours * pixels, amount);
    if (what == 1) change_contrast(planes, colours, pixels, amount);
    if (what == 2) change_saturation(planes, pixels, amount);
    if (what == kHue) change_hue(planes, pixels, amount);
  }
}

void normalise(const SourceOptions& options, float* planes, int64_t pixels) {
  for (int64_t c = 0; c < options.channels; ++c) {
    const auto i = static_cast<size_t>(c);
    const double mean = options.mean.empty() ? 0 : options.mean[i];
    const double deviation = options.std.empty() ? 1 : options.std[i];
    scale_and_shift(planes + c * pixels, pixels, static_cast<float>(1 / (255 * deviation)),
                    static_cast<float>(-mean / deviation));
  }
}

void to_minus_one_to_one(float* planes, int64_t count) {
  scale_and_shift(planes, count, static_cast<float>(2.0 / 255), -1);
}

Filter filter_named(const std::string& name) {
  if (name == "nearest") return Filter::nearest;
  return name == "bicubic" ? Filter::bicubic : Filter::bilinear;
}

}  // namespace tanren
