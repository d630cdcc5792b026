#include "tanren/metrics/picture_files.h"

#include "tanren/base/file.h"
#include "tanren/base/log.h"
#include "tanren/base/testing.h"
#include "tanren/formats/png.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

namespace tanren {
namespace {

namespace fs = std::filesystem;

ImageReport report_of(int64_t step, uint8_t first = 7) {
  ImageReport report{.step = step, .pictures = {}};
  for (int64_t i = 0; i < 2; ++i) {
    const int64_t width = 6 - 2 * i, height = 3;
    std::vector<uint8_t> rgb(static_cast<size_t>(width * height * 3));
    for (size_t at = 0; at < rgb.size(); ++at) rgb[at] = static_cast<uint8_t>(first + at);
    report.pictures.push_back({"train/pictures/" + std::to_string(i), width, height, rgb});
  }
  return report;
}

TEST(PictureFiles, a_folder_that_cannot_be_written_is_told_once_and_the_run_goes_on) {
  const testing::TemporaryFolder root;
  std::mutex mutex;
  std::string told;
  const auto before = set_log_sink([&](std::string_view line) {
    const std::lock_guard lock(mutex);
    told += std::string(line) + "\n";
  });
  root.file("images", "a file, no folder");
  {
    const auto sink = make_picture_files_sink(root.path() / "images", 0);
    for (int64_t step = 1; step < 9; ++step) sink->images(report_of(step));
    sink->flush();
  }
  set_log_sink(before);
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  EXPECT_NE(told.find("[metrics] cannot write pictures to "), std::string::npos);
}

TEST(PictureFiles, a_file_of_each_step_has_its_pictures_below_each_other) {
  const testing::TemporaryFolder root;
  const auto sink = make_picture_files_sink(root.path() / "images", 0);
  EXPECT_FALSE(fs::exists(root.path() / "images")) << "without pictures there is no folder";
  for (int64_t step = 200; step <= 2000; step += 200) sink->images(report_of(step));
  sink->images({.step = 2001, .pictures = {}});
  sink->flush();
  int64_t files = 0;
  for (const auto& entry : fs::directory_iterator(root.path() / "images")) {
    ++files;
    EXPECT_EQ(entry.path().extension(), ".png");
  }
  EXPECT_EQ(files, 10);
  const auto report = report_of(200);
  std::vector<uint8_t> joined(6 * 6 * 3);
  for (size_t row = 0; row < 3; ++row) {
    std::copy_n(report.pictures[0].rgb.begin() + static_cast<int64_t>(row) * 18, 18,
                joined.begin() + static_cast<int64_t>(row) * 18);
    std::copy_n(report.pictures[1].rgb.begin() + static_cast<int64_t>(row) * 12, 12,
                joined.begin() + static_cast<int64_t>(row + 3) * 18);
  }
  EXPECT_EQ(read_file(root.path() / "images/step-000200.png"), png_of(joined, 6, 6));
}

TEST(PictureFiles, a_resumed_run_removes_what_comes_after_its_step_and_nothing_else) {
  const testing::TemporaryFolder root;
  make_picture_files_sink(root.path() / "images", 0)->images(report_of(10));
  make_picture_files_sink(root.path() / "images", 10)->images(report_of(20));
  root.file("images/notes.txt", "mine");
  root.file("images/step-x.png", "mine");
  make_picture_files_sink(root.path() / "images", 15)->flush();
  EXPECT_TRUE(fs::exists(root.path() / "images/step-000010.png"));
  EXPECT_FALSE(fs::exists(root.path() / "images/step-000020.png"));
  EXPECT_TRUE(fs::exists(root.path() / "images/notes.txt"));
  EXPECT_TRUE(fs::exists(root.path() / "images/step-x.png"));
}

}  // namespace
}  // namespace tanren
