#include "tanren/data/image/decode.h"

#include "tanren/base/testing.h"
#include "tanren/data/image/image_test_util.h"

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

int64_t peak_kilobytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

std::string big_endian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

std::string png_chunk(const std::string& type, const std::string& data) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char byte : type + data) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
  }
  return big_endian(static_cast<uint32_t>(data.size())) + type + data + big_endian(~crc);
}

// A zlib stream of `bytes` zeros: fixed codes, each match is of 258 bytes.
std::string deflated_zeros(size_t bytes) {
  std::string stream("\x78\x9c", 2);
  uint32_t buffer = 0;
  int held = 0;
  const auto put = [&](uint32_t bits, int count) {
    buffer |= bits << held;
    for (held += count; held >= 8; held -= 8, buffer >>= 8) stream += static_cast<char>(buffer);
  };
  put(0b011, 3);                      // the last block, fixed codes
  put(0b00001100, 8);                 // the byte 0, bits reversed: 00110000
  const uint32_t match = 0b10100011;  // 11000101 reversed: length 258
  for (size_t i = 0; i < bytes / 258; ++i) {
    put(match, 8);
    put(0, 5);  // distance 1
  }
  put(0, 7);  // the end
  put(0, 8);
  return stream + big_endian(0);
}

// issue 21
TEST(ImageDecode, texts_and_profiles_of_a_png_are_passed_over_without_being_inflated) {
  const testing::ImageFixtures images;
  constexpr size_t kZeros = 400 << 20;
  const std::string zeros = deflated_zeros(kZeros);
  ASSERT_LT(zeros.size(), 3u << 20);
  for (const auto& name : images.names()) {
    const std::string bytes = images.bytes(name);
    const auto header = *image_header(bytes, true);
    if (header.format != ImageHeader::Format::png) continue;
    const PixelBox all{0, 0, header.width, header.height};
    const auto pixels = pixels_of(bytes, all);
    constexpr size_t kBehindHeader = 8 + 12 + 13;
    for (const auto& [type, before] :
         {std::pair("zTXt", std::string("a\0\0", 3)), std::pair("iCCP", std::string("a\0\0", 3)),
          std::pair("iTXt", std::string("a\0\1\0\0\0", 6))}) {
      std::string bomb = bytes;
      bomb.insert(kBehindHeader, png_chunk(type, before + zeros));
      const int64_t peak = peak_kilobytes();
      EXPECT_TRUE(pixels_of(bomb, all) == pixels) << name << " " << type;
      EXPECT_LT(peak_kilobytes() - peak, 30 << 10) << name << " " << type << ", kilobytes";
    }
    break;
  }
}

// issue 21
TEST(ImageDecode, a_jpeg_of_hundreds_of_scans_is_broken) {
  EXPECT_EQ(pixels_of(testing::make_jpeg(64, 64, {true, 1, 1, 20}), {0, 0, 64, 64}).size(),
            64u * 64 * 3);
  const std::string bytes = testing::make_jpeg(64, 64, {true, 1, 1, 63});
  const auto what = error_of<BrokenImage>([&] { pixels_of(bytes, {0, 0, 64, 64}); });
  TANREN_EXPECT_CONTAINS(what, "more than 100 scans");
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
