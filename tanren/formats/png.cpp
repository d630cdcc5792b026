#include "tanren/formats/png.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <cstdlib>
#include <memory>

#include <spng.h>

namespace tanren {

namespace {

void check_written(int result) {
  if (result != 0) throw RunError(fmt::format("[png] cannot encode: {}", spng_strerror(result)));
}

}  // namespace

std::string png_of(std::span<const uint8_t> rgb, int64_t width, int64_t height) {
  constexpr int64_t kMost = int64_t{1} << 31;
  const bool is_sized = width > 0 && height > 0 && width < kMost && height < kMost;
  if (!is_sized || rgb.size() != static_cast<size_t>(width) * static_cast<size_t>(height) * 3) {
    throw RunError(fmt::format("[png] {} × {} pixels of three bytes are not {} bytes", width,
                               height, rgb.size()));
  }
  const std::unique_ptr<spng_ctx, void (*)(spng_ctx*)> png(spng_ctx_new(SPNG_CTX_ENCODER),
                                                           spng_ctx_free);
  if (!png) throw std::bad_alloc();
  check_written(spng_set_option(png.get(), SPNG_ENCODE_TO_BUFFER, 1));
  spng_ihdr header{};
  header.width = static_cast<uint32_t>(width);
  header.height = static_cast<uint32_t>(height);
  header.bit_depth = 8;
  header.color_type = SPNG_COLOR_TYPE_TRUECOLOR;
  check_written(spng_set_ihdr(png.get(), &header));
  check_written(
      spng_encode_image(png.get(), rgb.data(), rgb.size(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE));
  size_t size = 0;
  int error = 0;
  const std::unique_ptr<void, void (*)(void*)> bytes(spng_get_png_buffer(png.get(), &size, &error),
                                                     std::free);
  check_written(error);
  return {static_cast<const char*>(bytes.get()), size};
}

}  // namespace tanren
