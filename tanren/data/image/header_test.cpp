#include "tanren/data/image/header.h"

#include "tanren/base/testing.h"
#include "tanren/data/image/image_test_util.h"

namespace tanren {
namespace {

using testing::contains;
using testing::error_of;

class ImageHeaderTest : public ::testing::Test {
 protected:
  std::string refusal(const std::string& bytes, int64_t max_pixels = 1 << 20) {
    const auto path = folder_.file("image", bytes);
    return error_of<BrokenImage>([&] { FileBuffer().check(path, max_pixels); });
  }
  testing::TemporaryFolder folder_;
  testing::ImageFixtures images_;
};

TEST_F(ImageHeaderTest, empty_foreign_and_absent_files_are_refused_with_their_reason) {
  EXPECT_EQ(refusal(""), "is empty");
  EXPECT_EQ(refusal("GIF89a and what follows"), "is neither JPEG nor PNG");
  EXPECT_EQ(error_of<BrokenImage>([&] { FileBuffer().check("/absent.jpg", 100); }),
            "cannot be read: No such file or directory");
  EXPECT_EQ(error_of<BrokenImage>([&] { FileBuffer().check(folder_.path().string(), 100); }),
            "is a folder");
}

TEST_F(ImageHeaderTest, a_file_cut_anywhere_is_refused) {
  for (const char* name : {"jpeg_420", "jpeg_turn_6", "png_rgb", "png_turn_6", "classic"}) {
    const std::string bytes = images_.bytes(name);
    for (size_t length = 1; length < bytes.size() - 8; length += 1 + bytes.size() / 97) {
      EXPECT_NE(refusal(bytes.substr(0, length)), "") << name << " cut to " << length;
    }
  }
}

TEST_F(ImageHeaderTest, a_large_file_whose_tail_is_missing_is_refused) {
  const std::string bytes = testing::make_jpeg(900, 700);
  ASSERT_GT(bytes.size(), size_t{64} << 10);
  EXPECT_TRUE(contains(refusal(bytes.substr(0, bytes.size() - 2)), "cut off"));
  EXPECT_TRUE(contains(refusal(bytes.substr(0, bytes.size() / 2)), "cut off"));
}

TEST_F(ImageHeaderTest, bytes_after_the_end_mark_do_no_harm) {
  const auto path = folder_.file("image", testing::make_jpeg(900, 700) + std::string(100'000, 'x'));
  EXPECT_EQ(FileBuffer().check(path, 1 << 20).width, 900);
}

TEST_F(ImageHeaderTest, more_pixels_than_allowed_are_refused_with_both_numbers) {
  EXPECT_EQ(refusal(testing::make_jpeg(30, 20), 599),
            "has 30 × 20 = 600 pixels, more than max_pixels = 599");
  EXPECT_EQ(FileBuffer().check(folder_.file("fine", testing::make_jpeg(30, 20)), 600).height, 20);
}

// issue 21
TEST_F(ImageHeaderTest, a_row_that_fills_the_memory_is_refused) {
  const ImageHeader endless{.format = ImageHeader::Format::png, .width = 90'000'000, .height = 1};
  EXPECT_EQ(error_of<BrokenImage>([&] { check_pixels(endless, 100'000'000); }),
            "has rows of 90000000 pixels, more than 1048576");
}

TEST_F(ImageHeaderTest, any_damaged_byte_is_a_reason_or_a_header_but_no_crash) {
  for (const char* name : {"jpeg_turn_6", "png_turn_6"}) {
    const std::string bytes = images_.bytes(name);
    for (size_t i = 0; i < std::min<size_t>(bytes.size(), 700); ++i) {
      for (const int value : {0, 1, 0x7F, 0xFF}) {
        std::string damaged = bytes;
        damaged[i] = static_cast<char>(value);
        try {
          const auto header = image_header(damaged, true);
          ASSERT_TRUE(header);
          EXPECT_GT(header->width, 0);
          EXPECT_TRUE(header->orientation >= 1 && header->orientation <= 8);
        } catch (const BrokenImage& broken) {
          EXPECT_STRNE(broken.what(), "");
        }
      }
    }
  }
}

TEST_F(ImageHeaderTest, size_and_turn_are_read) {
  for (int turn = 1; turn <= 8; ++turn) {
    const auto header = *image_header(images_.bytes("jpeg_turn_" + std::to_string(turn)), true);
    EXPECT_EQ(header.orientation, turn);
    EXPECT_EQ(header.width, 131);
    EXPECT_EQ(header.height, 90);
    EXPECT_EQ(header.shown_width(), turn >= 5 ? 90 : 131);
  }
  EXPECT_EQ(image_header(images_.bytes("png_turn_6"), true)->orientation, 6);
  EXPECT_EQ(image_header(images_.bytes("png_rgb"), true)->orientation, 1);
}

TEST_F(ImageHeaderTest, more_bytes_are_asked_for_until_the_header_is_whole) {
  const std::string bytes = images_.bytes("jpeg_turn_6");
  size_t length = 3;
  while (!image_header(std::string_view(bytes).substr(0, length), false)) ++length;
  EXPECT_GT(length, 100U);
  EXPECT_LT(length, bytes.size());
}

}  // namespace
}  // namespace tanren
