// ImageHeader: what a JPEG or PNG says of itself before its pixels: size and how to turn it. Found by
// content, never by the file's name. Torch-free, thread-safe. Called when an image folder is opened
// (every file's head and tail) and again before each decoding.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tanren {

// A file that holds no usable image; what() is the reason in a few words, without the file's name.
class BrokenImage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct ImageHeader {
  enum class Format { jpeg, png };
  Format format = Format::jpeg;
  int64_t width = 0;  // as stored, before turning
  int64_t height = 0;
  int orientation = 1;  // EXIF 1 to 8; 5 to 8 exchange width and height
  size_t body = 0;      // byte of the file where the header's segments end

  bool turned() const { return orientation >= 5; }
  int64_t shown_width() const { return turned() ? height : width; }
  int64_t shown_height() const { return turned() ? width : height; }
};

// Reads it from the first bytes of a file; nothing if more of them are needed, which cannot be once
// they are `whole`. BrokenImage for what is neither JPEG nor PNG, or ends too early.
std::optional<ImageHeader> image_header(std::string_view bytes, bool whole);

// The bytes of files, in one buffer that only grows. For one thread at a time.
class FileBuffer {
 public:
  // All bytes of a file, valid until the next call. BrokenImage with the system's reason.
  std::string_view read(const std::string& path);
  // The header of a file that is complete: its end mark is there too. Reads head and tail alone
  // where that is enough. BrokenImage, also for more than `max_pixels`.
  ImageHeader check(const std::string& path, int64_t max_pixels);
  // Bytes of the file that was checked last.
  int64_t checked_bytes() const { return checked_bytes_; }

 private:
  std::string buffer_;
  int64_t checked_bytes_ = 0;
};

// BrokenImage naming both numbers if the image has more pixels than `max_pixels`, or than 2^20 a row.
void check_pixels(const ImageHeader& header, int64_t max_pixels);

}  // namespace tanren
