// ImageHeader: the size and orientation that a JPEG or PNG declares before its pixels. The format
// is detected from the content, never from the file's name. Torch-free, thread-safe. Read when an
// image folder is opened (every file's head and tail) and again before each decoding.
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
  int components = 3;   // of a JPEG's pixel: 1 grey, 3 colours, 4 CMYK or YCCK
  size_t body = 0;      // byte of the file where the header's segments end

  bool turned() const { return orientation >= 5; }
  int64_t shown_width() const { return turned() ? height : width; }
  int64_t shown_height() const { return turned() ? width : height; }
};

// Reads the header from the first bytes of a file. Returns nullopt if more bytes are needed, which
// cannot happen if they are the `whole` file. BrokenImage for a file that is neither JPEG nor PNG,
// or that ends too early.
std::optional<ImageHeader> image_header(std::string_view bytes, bool whole);

// Reads files into one buffer that only grows. For one thread at a time.
class FileBuffer {
 public:
  // All bytes of a file, valid until the next call. BrokenImage with the system's reason.
  std::string_view read(const std::string& path);
  // Returns the header of a complete file, i.e. one that also has its end mark. Reads only head and
  // tail if that is enough. BrokenImage for a broken file or one of more than `max_pixels`.
  ImageHeader check(const std::string& path, int64_t max_pixels);
  // Size of the file that was checked last.
  int64_t checked_bytes() const { return checked_bytes_; }

 private:
  std::string buffer_;
  int64_t checked_bytes_ = 0;
};

// BrokenImage naming both numbers if the image has more than `max_pixels` pixels, or more than 2^20
// in a row.
void check_pixels(const ImageHeader& header, int64_t max_pixels);

}  // namespace tanren
