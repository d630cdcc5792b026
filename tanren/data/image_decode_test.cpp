#include "tanren/data/image_decode.h"

#include "tanren/base/testing.h"
#include "tanren/data/image_test_util.h"

#include <sys/resource.h>

namespace tanren {
namespace {

using testing::error_of;
using testing::JpegKind;

// The pixels of a box, row by row.
std::vector<uint8_t> pixels_of(std::string_view bytes, const PixelBox& need, int64_t divisor = 1) {
  std::vector<uint8_t> rows, pixels;
  const auto width = static_cast<size_t>(need.x1 - need.x0) * 3;
  int64_t next = need.y0;
  decode_image(bytes, {*image_header(bytes, true), divisor, need}, rows,
               [&](int64_t y, const uint8_t* row) {
                 EXPECT_EQ(y, next++);
                 pixels.insert(pixels.end(), row, row + width);
               });
  EXPECT_EQ(next, need.y1);
  return pixels;
}

TEST(ImageDecode, damage_inside_the_box_is_a_broken_image_and_never_a_crash) {
  const testing::ImageFixtures images;
  for (const auto& name : images.names()) {
    const std::string bytes = images.bytes(name);
    const auto header = *image_header(bytes, true);
    int refused = 0;
    for (size_t i = 0; i < 60; ++i) {
      std::string damaged = bytes;
      const size_t at = header.body + 20 + i * (bytes.size() - header.body - 30) / 60;
      for (size_t k = 0; k < 3; ++k) damaged[at + k] = static_cast<char>(0xA7 * (i + 1) + k);
      try {
        pixels_of(damaged, {0, 0, header.width, header.height});
      } catch (const BrokenImage&) {
        ++refused;
      }
    }
    if (header.format == ImageHeader::Format::png) {
      EXPECT_GT(refused, 50) << name;
    }
  }
}

TEST(ImageDecode, a_jpeg_that_ends_early_is_broken) {
  const std::string bytes = testing::make_jpeg(200, 150);
  const std::string half = bytes.substr(0, bytes.size() / 2);
  const auto what = error_of<BrokenImage>([&] { pixels_of(half, {0, 0, 200, 150}); });
  TANREN_EXPECT_CONTAINS(what, "JPEG: ");
}

TEST(ImageDecode, a_box_of_a_jpeg_holds_the_pixels_of_the_whole_image) {
  constexpr int kWidth = 203, kHeight = 149;
  for (const JpegKind kind : {JpegKind{false, 2, 2}, JpegKind{false, 2, 1}, JpegKind{false, 1, 1},
                              JpegKind{true, 2, 2}, JpegKind{false, 1, 2}}) {
    const std::string bytes = testing::make_jpeg(kWidth, kHeight, kind);
    for (const int64_t divisor : {1, 2, 4, 8}) {
      const int64_t w = (kWidth + divisor - 1) / divisor, h = (kHeight + divisor - 1) / divisor;
      const auto whole = pixels_of(bytes, {0, 0, w, h}, divisor);
      for (int i = 0; i < 12; ++i) {
        const int64_t x0 = w * (i % 5) / 7, y0 = h * (i % 4) / 5;
        const PixelBox box{x0, y0, std::min(w, x0 + 1 + w * (i % 3 + 1) / 4),
                           std::min(h, y0 + 1 + h * (i % 6 + 1) / 7)};
        const auto part = pixels_of(bytes, box, divisor);
        for (int64_t y = box.y0; y < box.y1; ++y) {
          const auto* const from = whole.data() + (y * w + box.x0) * 3;
          const auto* const got = part.data() + (y - box.y0) * (box.x1 - box.x0) * 3;
          ASSERT_TRUE(std::equal(got, got + (box.x1 - box.x0) * 3, from))
              << "divisor " << divisor << " box " << i << " row " << y << " sampling "
              << kind.across << kind.down << kind.progressive;
        }
      }
    }
  }
}

TEST(ImageDecode, a_hundred_megapixels_pass_without_being_held) {
  const std::string bytes = testing::make_jpeg(10'000, 10'000);
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  std::vector<uint8_t> rows;
  int64_t seen = 0;
  decode_image(bytes, {*image_header(bytes, true), 1, {0, 0, 10'000, 10'000}}, rows,
               [&](int64_t, const uint8_t*) { ++seen; });
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_EQ(seen, 10'000);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 30 << 10) << "kilobytes";
}

}  // namespace
}  // namespace tanren
