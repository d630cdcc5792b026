#include "tanren/data/image/header.h"

#include "tanren/base/text.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tanren {

namespace {

// A header rarely needs more; an embedded thumbnail or colour profile may.
constexpr size_t kHead = 16 << 10;
constexpr size_t kTail = 4 << 10;

uint32_t byte_at(std::string_view b, size_t at) { return static_cast<uint8_t>(b[at]); }
uint32_t be16(std::string_view b, size_t at) { return byte_at(b, at) << 8 | byte_at(b, at + 1); }
uint32_t be32(std::string_view b, size_t at) { return be16(b, at) << 16 | be16(b, at + 2); }
uint32_t le16(std::string_view b, size_t at) { return byte_at(b, at) | byte_at(b, at + 1) << 8; }
uint32_t le32(std::string_view b, size_t at) { return le16(b, at) | le16(b, at + 2) << 16; }

// Tag 0x0112 of the first directory of a TIFF block; 1 if it is absent or makes no sense.
int exif_orientation(std::string_view tiff) {
  if (tiff.size() < 8) return 1;
  const bool little = tiff[0] == 'I';
  if (tiff.substr(0, 2) != (little ? "II" : "MM")) return 1;
  const auto u16 = [&](size_t at) { return little ? le16(tiff, at) : be16(tiff, at); };
  const size_t directory = little ? le32(tiff, 4) : be32(tiff, 4);
  if (directory + 2 > tiff.size()) return 1;
  const size_t entries = u16(directory);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + 12 * i;
    if (entry + 12 > tiff.size()) return 1;
    constexpr uint32_t kOrientation = 0x0112, kShort = 3;
    if (u16(entry) != kOrientation || u16(entry + 2) != kShort) continue;
    const auto value = static_cast<int>(u16(entry + 8));
    return value >= 1 && value <= 8 ? value : 1;
  }
  return 1;
}

constexpr std::string_view kExif("Exif\0\0", 6);
constexpr std::string_view kJpegStart("\xFF\xD8\xFF", 3);
constexpr std::string_view kJpegEnd("\xFF\xD9", 2);
constexpr std::string_view kPngStart("\x89PNG\r\n\x1a\n", 8);

bool is_frame(uint32_t marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

std::optional<ImageHeader> jpeg_header(std::string_view b, bool whole) {
  const auto more = [&]() -> std::optional<ImageHeader> {
    if (whole) throw BrokenImage("the JPEG ends inside its header");
    return std::nullopt;
  };
  ImageHeader header;
  bool exif_seen = false;
  for (size_t at = 2;;) {
    while (at < b.size() && byte_at(b, at) != 0xFF) ++at;  // stray bytes are skipped, as in libjpeg
    while (at + 1 < b.size() && byte_at(b, at + 1) == 0xFF) ++at;
    if (at + 10 > b.size()) return more();
    const uint32_t marker = byte_at(b, at + 1);
    if (marker <= 0x01 || (marker >= 0xD0 && marker <= 0xD8)) {
      at += 2;
      continue;
    }
    if (marker == 0xD9 || marker == 0xDA) throw BrokenImage("the JPEG has no size in its header");
    const size_t length = be16(b, at + 2);
    if (length < 2) throw BrokenImage("the JPEG has a damaged header");
    if (is_frame(marker)) {
      header.height = be16(b, at + 5);
      header.width = be16(b, at + 7);
      header.components = static_cast<int>(byte_at(b, at + 9));
      header.body = at;
      if (header.width == 0 || header.height == 0) throw BrokenImage("the JPEG is of size 0");
      return header;
    }
    if (marker == 0xE1 && !exif_seen) {
      if (at + 2 + length > b.size()) return more();
      const auto segment = b.substr(at + 4, length - 2);
      if (segment.substr(0, kExif.size()) == kExif) {
        exif_seen = true;
        header.orientation = exif_orientation(segment.substr(kExif.size()));
      }
    }
    at += 2 + length;
  }
}

std::optional<ImageHeader> png_header(std::string_view b, bool whole) {
  ImageHeader header{.format = ImageHeader::Format::png};
  for (size_t at = kPngStart.size();;) {
    if (at + 8 > b.size()) {
      if (whole) throw BrokenImage("the PNG ends inside its header");
      return std::nullopt;
    }
    const size_t length = be32(b, at);
    const auto type = b.substr(at + 4, 4);
    header.body = at;
    if (type == "IDAT" || type == "IEND") break;
    const bool wanted = type == "IHDR" || type == "eXIf";
    if (wanted && at + 8 + length > b.size()) {
      if (whole) throw BrokenImage("the PNG ends inside its header");
      return std::nullopt;
    }
    if (type == "IHDR" && length >= 8) {
      header.width = be32(b, at + 8);
      header.height = be32(b, at + 12);
    }
    if (type == "eXIf") header.orientation = exif_orientation(b.substr(at + 8, length));
    at += 12 + length;
  }
  constexpr int64_t kMost = int64_t{1} << 31;  // the format's own limit
  const bool sized = header.width > 0 && header.height > 0;
  if (!sized || header.width >= kMost || header.height >= kMost) {
    throw BrokenImage("the PNG has no size in its header");
  }
  return header;
}

class OpenedFile {
 public:
  explicit OpenedFile(const std::string& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
    struct stat info {};
    if (descriptor_ < 0) fail();
    const bool known = ::fstat(descriptor_, &info) == 0;
    const bool is_other = known && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
    if (!known || is_other || S_ISDIR(info.st_mode) || info.st_size == 0) {
      const int reason = errno;
      ::close(descriptor_);
      errno = reason;
      if (!known) fail();
      throw BrokenImage(is_other                ? "is no regular file"
                        : S_ISDIR(info.st_mode) ? "is a folder"
                                                : "is empty");
    }
    size_ = static_cast<size_t>(info.st_size);
  }
  ~OpenedFile() { ::close(descriptor_); }
  OpenedFile(const OpenedFile&) = delete;
  OpenedFile& operator=(const OpenedFile&) = delete;

  size_t size() const { return size_; }
  // Reads bytes [from, from + count) into `target`; fewer only if the file has shrunk meanwhile.
  std::string_view read(char* target, size_t from, size_t count) const {
    size_t done = 0;
    while (done < count) {
      const auto got =
          ::pread(descriptor_, target + done, count - done, static_cast<off_t>(from + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail();
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return {target, done};
  }

 private:
  [[noreturn]] static void fail() {
    throw BrokenImage(std::string("cannot be read: ") + std::strerror(errno));
  }

  int descriptor_;
  size_t size_ = 0;
};

// Whether `bytes` contain the end mark of this format.
bool has_end(std::string_view bytes, ImageHeader::Format format) {
  const auto mark = format == ImageHeader::Format::jpeg ? kJpegEnd : std::string_view("IEND");
  return bytes.rfind(mark) != std::string_view::npos;
}

}  // namespace

std::optional<ImageHeader> image_header(std::string_view bytes, bool whole) {
  if (bytes.substr(0, kJpegStart.size()) == kJpegStart) return jpeg_header(bytes, whole);
  if (bytes.substr(0, kPngStart.size()) == kPngStart) return png_header(bytes, whole);
  throw BrokenImage("is neither JPEG nor PNG");
}

void check_pixels(const ImageHeader& header, int64_t max_pixels) {
  // A decoder holds whole rows, of up to 8 bytes a pixel.
  constexpr int64_t kMostAcross = int64_t{1} << 20;
  if (header.width > kMostAcross) {
    throw BrokenImage(fmt::format("has rows of {} pixels, more than {}", to_text(header.width),
                                  to_text(kMostAcross)));
  }
  const int64_t pixels = header.width * header.height;  // each below 2^31
  if (pixels <= max_pixels) return;
  throw BrokenImage(fmt::format("has {} × {} = {} pixels, more than max_pixels = {}",
                                to_text(header.width), to_text(header.height), to_text(pixels),
                                to_text(max_pixels)));
}

std::string_view FileBuffer::read(const std::string& path) {
  const OpenedFile file(path);
  if (buffer_.size() < file.size()) buffer_.resize(file.size());
  return file.read(buffer_.data(), 0, file.size());
}

ImageHeader FileBuffer::check(const std::string& path, int64_t max_pixels) {
  const OpenedFile file(path);
  const size_t size = file.size();
  checked_bytes_ = static_cast<int64_t>(size);
  if (buffer_.size() < std::min(size, kHead)) buffer_.resize(std::min(size, kHead));
  auto bytes = file.read(buffer_.data(), 0, std::min(size, kHead));
  bool whole = bytes.size() == size;
  const auto read_all = [&] {
    if (buffer_.size() < size) buffer_.resize(size);
    bytes = file.read(buffer_.data(), 0, size);
    whole = true;
  };
  auto header = image_header(bytes, whole);
  if (!header) {
    read_all();
    header = image_header(bytes, true);
  }
  check_pixels(*header, max_pixels);

  // A thumbnail in the header has its own end mark, so only the bytes after the header count. The
  // file's last bytes nearly always hold the end mark, but other data may follow it.
  if (!whole) {
    const size_t from = std::max(kHead, size - std::min(size, kTail));
    if (has_end(file.read(buffer_.data(), from, size - from), header->format)) return *header;
    read_all();
  }
  // The file may have become shorter since its header was read.
  if (!has_end(bytes.substr(std::min(header->body, bytes.size())), header->format))
    throw BrokenImage("is cut off: its end mark is missing");
  return *header;
}

}  // namespace tanren
