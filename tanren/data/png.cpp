// PNG through libspng, which decodes hostile files safely and row by row.
#include "tanren/data/image_decode.h"

#include <memory>
#include <string>

#include <spng.h>

namespace tanren {

namespace {

void check(int result) {
  if (result != 0) throw BrokenImage(std::string("PNG: ") + spng_strerror(result));
}

}  // namespace

void decode_png(std::string_view bytes, const DecodeRequest& request, std::vector<uint8_t>& rows,
                const RowSink& sink) {
  const std::unique_ptr<spng_ctx, void (*)(spng_ctx*)> png(spng_ctx_new(0), spng_ctx_free);
  if (!png) throw std::bad_alloc();
  check(spng_set_png_buffer(png.get(), bytes.data(), bytes.size()));
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
    if (result != SPNG_EOI) check(result);  // that is how the last row reports itself
    if (y >= need.y0) sink(y, rows.data() + offset);
  }
}

}  // namespace tanren
