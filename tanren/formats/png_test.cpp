#include "tanren/formats/png.h"

#include "tanren/base/error.h"

#include <gtest/gtest.h>

#include <vector>

#include <spng.h>

namespace tanren {
namespace {

TEST(Png, refuses_sizes_that_are_not_those_of_the_pixels) {
  const std::vector<uint8_t> pixels(12);
  EXPECT_THROW(png_of(pixels, 2, 3), RunError);
  EXPECT_THROW(png_of(pixels, 0, 0), RunError);
  EXPECT_THROW(png_of({}, int64_t{1} << 32, int64_t{1} << 32), RunError);
}

TEST(Png, gives_back_every_pixel) {
  std::vector<uint8_t> pixels(37 * 19 * 3);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * i + i / 7);
  const std::string file = png_of(pixels, 37, 19);
  spng_ctx* png = spng_ctx_new(0);
  ASSERT_EQ(spng_set_png_buffer(png, file.data(), file.size()), 0);
  spng_ihdr header{};
  ASSERT_EQ(spng_get_ihdr(png, &header), 0);
  EXPECT_EQ(header.width, 37U);
  EXPECT_EQ(header.height, 19U);
  std::vector<uint8_t> back(pixels.size());
  EXPECT_EQ(spng_decode_image(png, back.data(), back.size(), SPNG_FMT_RGB8, 0), 0);
  EXPECT_EQ(back, pixels);
  spng_ctx_free(png);
}

}  // namespace
}  // namespace tanren
