#include "tanren/data/image/transform.h"

#include "tanren/data/image/colour.h"
#include "tanren/data/image/decode.h"
#include "tanren/data/image/image_test_util.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include <ATen/ATen.h>

namespace tanren {
namespace {

SourceOptions image_options(std::vector<int64_t> size) {
  SourceOptions options;
  options.size = std::move(size);
  return options;
}

// The view of an image, as planes of [0, 255].
std::vector<float> resized_planes(const View& view, const ImageHeader& header,
                                  const std::string& bytes, int64_t colours, int64_t divisor = 1) {
  std::vector<float> planes(static_cast<size_t>(colours * view.x.outputs * view.y.outputs), -1);
  const auto stored = stored_view(view, header, planes.data());
  Resizer resizer;
  resizer.start(stored.x.divided(divisor), stored.y.divided(divisor), colours, stored.target);
  std::vector<uint8_t> rows;
  decode_image(
      bytes,
      {header, divisor, {resizer.first_x(), resizer.first_y(), resizer.end_x(), resizer.end_y()}},
      rows, [&](int64_t y, const uint8_t* row) { resizer.row(y, row); });
  return planes;
}

double largest_difference(const std::vector<float>& planes, const at::Tensor& expected) {
  const auto* values = expected.const_data_ptr<uint8_t>();
  EXPECT_EQ(static_cast<int64_t>(planes.size()), expected.numel());
  double largest = 0;
  for (size_t i = 0; i < planes.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(planes[i]) - values[i]));
  }
  return largest;
}

TEST(ImageTransform, evaluation_lies_within_one_level_of_torchvision_for_every_kind_of_file) {
  const testing::ImageFixtures images;
  for (const auto& name : images.names()) {
    const std::string bytes = images.bytes(name);
    const auto header = *image_header(bytes, true);
    auto options = image_options({name == "classic" ? 224 : 32});
    options.resize = name == "classic" ? 256 : 40;
    const auto view = evaluation_view(options, header.shown_width(), header.shown_height());
    const auto planes = resized_planes(view, header, bytes, 3);
    EXPECT_LE(largest_difference(planes, images.expected(name)), 1.001) << name;
  }
}

TEST(ImageTransform, without_resize_the_crop_is_covered_exactly) {
  for (const auto& [width, height] : {std::pair{500, 375}, {375, 500}, {64, 64}, {30, 200}}) {
    const auto view = evaluation_view(image_options({40, 60}), width, height);
    const double step = std::min(width / 60.0, height / 40.0);
    EXPECT_NEAR(std::max(view.x.step, view.y.step), step, 0.04 * step) << width << "×" << height;
    EXPECT_GE(view.x.origin, 0);
    EXPECT_GE(view.y.origin, 0);
    EXPECT_LE(view.x.origin + 60 * view.x.step, width + 1e-9);
    EXPECT_LE(view.y.origin + 40 * view.y.step, height + 1e-9);
  }
}

TEST(ImageTransform, random_crops_stay_inside_and_have_the_asked_area_and_shape) {
  auto options = image_options({32});
  options.crop = "random";
  options.crop_scale = {0.2, 0.6};
  double area = 0, ratio = 0;
  constexpr int kDraws = 4000;
  for (int i = 0; i < kDraws; ++i) {
    const auto view = training_view(options, 200, 150, SampleRandom(1, 0, i));
    const double w = 32 * view.x.step, h = 32 * view.y.step;
    EXPECT_GE(view.x.origin, 0);
    EXPECT_GE(view.y.origin, 0);
    EXPECT_LE(view.x.origin + w, 200);
    EXPECT_LE(view.y.origin + h, 150);
    EXPECT_GT(w * h / 30000, 0.19);
    EXPECT_LT(w * h / 30000, 0.61);
    EXPECT_GT(w / h, 0.74);
    EXPECT_LT(w / h, 1.36);
    area += w * h / 30000 / kDraws;
    ratio += std::log(w / h) / kDraws;
  }
  EXPECT_NEAR(area, 0.4, 0.01);
  EXPECT_NEAR(ratio, 0, 0.01);
}

TEST(ImageTransform, a_shape_that_never_fits_gives_the_largest_central_crop) {
  auto options = image_options({32});
  options.crop = "random";
  options.crop_scale = {1, 1};
  const auto view = training_view(options, 400, 100, SampleRandom(1, 0, 3));
  EXPECT_DOUBLE_EQ(32 * view.x.step, 133);
  EXPECT_DOUBLE_EQ(view.x.origin, 133);
  EXPECT_DOUBLE_EQ(32 * view.y.step, 100);
}

TEST(ImageTransform, shifted_crops_reach_every_place_and_are_black_beside_the_image) {
  const std::string bytes = testing::make_jpeg(32, 32);
  const auto header = *image_header(bytes, true);
  auto options = image_options({32});
  options.crop = "shift";
  options.pad = 4;
  std::set<std::pair<double, double>> places;
  for (int i = 0; i < 2000; ++i) {
    const auto view = training_view(options, 32, 32, SampleRandom(1, 0, i));
    places.insert({view.x.origin, view.y.origin});
  }
  EXPECT_EQ(places.size(), 81U);
  EXPECT_EQ(*places.begin(), (std::pair{-4.0, -4.0}));
  EXPECT_EQ(*places.rbegin(), (std::pair{4.0, 4.0}));

  options.crop = "center";
  auto view = evaluation_view(options, 32, 32);
  const auto plain = resized_planes(view, header, bytes, 3);
  view.x.origin = -3;
  view.y.origin = 2;
  const auto moved = resized_planes(view, header, bytes, 3);
  for (int64_t c = 0; c < 3; ++c) {
    for (int64_t y = 0; y < 32; ++y) {
      for (int64_t x = 0; x < 32; ++x) {
        const bool outside = x < 3 || y >= 30;
        const float expected =
            outside ? 0 : plain[static_cast<size_t>((c * 32 + y + 2) * 32 + x - 3)];
        ASSERT_EQ(moved[static_cast<size_t>((c * 32 + y) * 32 + x)], expected) << x << ' ' << y;
      }
    }
  }
}

TEST(ImageTransform, a_flipped_image_is_the_mirror_of_itself_in_every_turn) {
  const testing::ImageFixtures images;
  for (int turn = 1; turn <= 8; ++turn) {
    const std::string bytes = images.bytes("jpeg_turn_" + std::to_string(turn));
    const auto header = *image_header(bytes, true);
    auto view =
        evaluation_view(image_options({20, 30}), header.shown_width(), header.shown_height());
    const auto plain = resized_planes(view, header, bytes, 3);
    view.flip = true;
    auto mirror = resized_planes(view, header, bytes, 3);
    for (auto row = mirror.begin(); row != mirror.end(); row += 30) std::reverse(row, row + 30);
    EXPECT_EQ(plain, mirror) << turn;
  }
}

TEST(ImageTransform, a_jpeg_decoded_at_a_fraction_looks_the_same) {
  const testing::ImageFixtures images;
  const std::string bytes = images.bytes("classic");
  const auto header = *image_header(bytes, true);
  auto view = evaluation_view(image_options({60}), 500, 375);
  EXPECT_EQ(training_divisor(stored_view(view, header, nullptr), header), 4);
  const auto whole = resized_planes(view, header, bytes, 3);
  for (const int64_t divisor : {2, 4}) {
    const auto part = resized_planes(view, header, bytes, 3, divisor);
    double sum = 0;
    for (size_t i = 0; i < whole.size(); ++i) sum += std::abs(whole[i] - part[i]);
    EXPECT_LT(sum / static_cast<double>(whole.size()), 3.0) << "levels on average at " << divisor;
  }
  view = evaluation_view(image_options({376}), 500, 375);
  EXPECT_EQ(training_divisor(stored_view(view, header, nullptr), header), 1);
}

TEST(ImageTransform, grey_is_the_luma_of_the_colours) {
  const testing::ImageFixtures images;
  const std::string bytes = images.bytes("png_rgb");
  const auto header = *image_header(bytes, true);
  const auto view = evaluation_view(image_options({32}), 131, 90);
  const auto colours = resized_planes(view, header, bytes, 3);
  const auto grey = resized_planes(view, header, bytes, 1);
  for (size_t i = 0; i < grey.size(); ++i) {
    const float luma =
        0.299F * colours[i] + 0.587F * colours[i + 1024] + 0.114F * colours[i + 2048];
    ASSERT_NEAR(grey[i], luma, 0.6);
  }
}

// One pixel through one change.
std::array<float, 3> changed(std::array<float, 3> rgb, void (*change)(float*, int64_t, float),
                             float amount) {
  change(rgb.data(), 1, amount);
  return rgb;
}

TEST(ImageTransform, a_turned_hue_takes_red_to_green_to_blue_and_leaves_greys) {
  const auto near = [](const std::array<float, 3>& a, const std::array<float, 3>& b) {
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(a[i], b[i], 1e-3);
  };
  near(changed({200, 0, 0}, change_hue, 1 / 3.0F), {0, 200, 0});
  near(changed({200, 0, 0}, change_hue, -1 / 3.0F), {0, 0, 200});
  near(changed({10, 90, 200}, change_hue, 0), {10, 90, 200});
  near(changed({10, 90, 200}, change_hue, 0.5F), {200, 120, 10});
  near(changed({90, 90, 90}, change_hue, 0.3F), {90, 90, 90});
  near(changed({100, 50, 0}, change_saturation, 0), {59.25F, 59.25F, 59.25F});
  near(changed({100, 50, 200}, change_saturation, 1), {100, 50, 200});
}

TEST(ImageTransform, jitter_stays_in_range_and_differs_by_sample_and_epoch) {
  auto options = image_options({8});
  options.color = {0.8, 0.8, 0.8, 0.5};
  std::vector<float> start(192);
  for (size_t i = 0; i < start.size(); ++i) start[i] = static_cast<float>(i * 37 % 256);
  std::set<std::vector<float>> seen;
  for (int epoch = 0; epoch < 5; ++epoch) {
    for (int sample = 0; sample < 20; ++sample) {
      auto planes = start;
      jitter(options, SampleRandom(7, epoch, sample), planes.data(), 64);
      for (const float value : planes) ASSERT_TRUE(value >= 0 && value <= 255.001F) << value;
      auto again = start;
      jitter(options, SampleRandom(7, epoch, sample), again.data(), 64);
      EXPECT_EQ(planes, again);
      seen.insert(planes);
    }
  }
  EXPECT_EQ(seen.size(), 100U);
  options.color = {0, 0, 0, 0};
  auto planes = start;
  jitter(options, SampleRandom(7, 0, 0), planes.data(), 64);
  EXPECT_EQ(planes, start);
}

}  // namespace
}  // namespace tanren
