// PNG through libspng, which decodes untrusted files safely and row by row. It gets only the
// critical chunks. Texts and colour profiles would be inflated without a limit, and they change no
// pixel.
#include "tanren/data/image/decode.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include <spng.h>

namespace tanren {

namespace {

void check(int result) {
  if (result != 0) throw BrokenImage(std::string("PNG: ") + spng_strerror(result));
}

// The bytes of a PNG without its ancillary chunks, as a stream.
class CriticalChunks {
 public:
  explicit CriticalChunks(std::string_view bytes) : bytes_(bytes), left_(kSignature) {}

  static int read(spng_ctx*, void* self, void* target, size_t count) {
    return static_cast<CriticalChunks*>(self)->take(static_cast<char*>(target), count);
  }

 private:
  static constexpr size_t kSignature = 8, kAround = 12;  // length, type and checksum of a chunk

  int take(char* target, size_t count) {
    while (count > 0) {
      if (left_ == 0) find_chunk();
      const size_t part = std::min({count, left_, bytes_.size() - at_});
      if (part == 0) return SPNG_IO_EOF;
      std::memcpy(target, bytes_.data() + at_, part);
      target += part;
      count -= part;
      at_ += part;
      left_ -= part;
    }
    return 0;
  }

  // Moves to the next critical chunk, whose type begins with a capital letter; left_ stays 0 at the
  // end.
  void find_chunk() {
    while (bytes_.size() - at_ >= kAround) {
      size_t size = 0;
      for (size_t i = 0; i < 4; ++i) size = size << 8 | static_cast<uint8_t>(bytes_[at_ + i]);
      const size_t whole = std::min(size + kAround, bytes_.size() - at_);
      const bool critical = (bytes_[at_ + 4] & 0x20) == 0;
      if (critical) {
        left_ = whole;
        return;
      }
      at_ += whole;
    }
  }

  std::string_view bytes_;
  size_t at_ = 0;
  size_t left_;  // of the chunk at `at_`
};

}  // namespace

void decode_png(std::string_view bytes, const DecodeRequest& request, std::vector<uint8_t>& rows,
                const RowSink& sink) {
  const std::unique_ptr<spng_ctx, void (*)(spng_ctx*)> png(spng_ctx_new(0), spng_ctx_free);
  if (!png) throw std::bad_alloc();
  CriticalChunks chunks(bytes);
  check(spng_set_png_stream(png.get(), CriticalChunks::read, &chunks));
  spng_ihdr header{};
  check(spng_get_ihdr(png.get(), &header));
  if (header.width != request.header.width || header.height != request.header.height) {
    throw BrokenImage("PNG: its size has changed");
  }
  const auto& need = request.need;
  const auto offset = static_cast<size_t>(need.x0) * 3;
  const size_t width = size_t{header.width} * 3;
  if (header.interlace_method != SPNG_INTERLACE_NONE) {
    rows.resize(width * header.height);
    check(spng_decode_image(png.get(), rows.data(), rows.size(), SPNG_FMT_RGB8, 0));
    for (int64_t y = need.y0; y < need.y1; ++y) {
      sink(y, rows.data() + static_cast<size_t>(y) * width + offset);
    }
    return;
  }
  rows.resize(width);
  check(spng_decode_image(png.get(), nullptr, 0, SPNG_FMT_RGB8, SPNG_DECODE_PROGRESSIVE));
  for (int64_t y = 0; y < need.y1; ++y) {
    const int result = spng_decode_row(png.get(), rows.data(), width);
    if (result != SPNG_EOI) check(result);  // the last row returns SPNG_EOI
    if (y >= need.y0) sink(y, rows.data() + offset);
  }
}

}  // namespace tanren
