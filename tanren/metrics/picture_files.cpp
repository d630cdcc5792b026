#include "tanren/metrics/picture_files.h"

#include "tanren/base/file.h"
#include "tanren/base/log.h"
#include "tanren/base/text.h"
#include "tanren/formats/png.h"

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace tanren {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostWaiting = 4;  // reports; then the step's thread waits for the writer
constexpr std::string_view kPictureStem = "step-", kPictureEnd = ".png";

// The pictures of a report below each other; narrower ones are black at their right.
std::string one_png(const ImageReport& report) {
  int64_t width = 0, height = 0;
  for (const auto& picture : report.pictures) {
    width = std::max(width, picture.width);
    height += picture.height;
  }
  std::vector<uint8_t> rgb(static_cast<size_t>(width * height) * 3);
  auto to = rgb.begin();
  for (const auto& picture : report.pictures) {
    const auto row = static_cast<int64_t>(picture.width) * 3;
    for (int64_t y = 0; y < picture.height; ++y, to += width * 3) {
      std::copy_n(picture.rgb.begin() + y * row, row, to);
    }
  }
  return png_of(rgb, width, height);
}

// The step that a file is named after; empty for other files.
std::optional<int64_t> step_of_picture(const std::string& name) {
  if (!name.starts_with(kPictureStem) || !name.ends_with(kPictureEnd)) return std::nullopt;
  const char* end = name.data() + name.size() - kPictureEnd.size();
  int64_t step = 0;
  const auto [read, error] = std::from_chars(name.data() + kPictureStem.size(), end, step);
  if (error != std::errc() || read != end) return std::nullopt;
  return step;
}

class PictureFiles final : public Sink {
 public:
  PictureFiles(fs::path folder, int64_t step) : folder_(std::move(folder)) {
    remove_after(step);
    writer_ = std::thread([this] { write_on(); });
  }
  ~PictureFiles() override {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    called_.notify_one();
    writer_.join();
  }
  PictureFiles(const PictureFiles&) = delete;
  PictureFiles& operator=(const PictureFiles&) = delete;

  void step(const StepReport&) override {}

  void images(const ImageReport& report) override {
    if (report.pictures.empty()) return;
    std::unique_lock lock(mutex_);
    written_.wait(lock, [this] { return waiting_.size() < kMostWaiting; });
    waiting_.push_back(report);
    called_.notify_one();
  }

  void flush() override {
    std::unique_lock lock(mutex_);
    written_.wait(lock, [this] { return waiting_.empty(); });
  }

 private:
  void remove_after(int64_t step) const {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder_, error)) {
      const auto of = step_of_picture(entry.path().filename().string());
      if (of && *of > step) fs::remove(entry.path(), error);
    }
  }

  void write_on() {
    std::unique_lock lock(mutex_);
    while (true) {
      called_.wait(lock, [this] { return is_ending_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const ImageReport& report = waiting_.front();  // stays in place while others are added
      lock.unlock();
      write(report);
      lock.lock();
      waiting_.pop_front();
      written_.notify_all();
    }
  }

  void write(const ImageReport& report) {
    try {
      fs::create_directories(folder_);
      write_file(folder_ / picture_file_name(report.step), one_png(report));
    } catch (const std::exception& error) {
      if (!std::exchange(is_warned_, true)) {
        log(fmt::format("[metrics] cannot write pictures to {}: {}; the run goes on without them",
                        folder_.string(), error.what()));
      }
    }
  }

  const fs::path folder_;
  std::mutex mutex_;
  std::condition_variable called_;   // to the writer
  std::condition_variable written_;  // from the writer
  std::deque<ImageReport> waiting_;  // the first one may be under way
  bool is_ending_ = false;
  bool is_warned_ = false;  // the writer's
  std::thread writer_;
};

}  // namespace

std::string picture_file_name(int64_t step) {
  return fmt::format("{}{:06}{}", kPictureStem, step, kPictureEnd);
}

std::unique_ptr<Sink> make_picture_files_sink(const fs::path& folder, int64_t step) {
  return std::make_unique<PictureFiles>(folder, step);
}

}  // namespace tanren
