// Decodes JPEG and PNG row by row, top to bottom, to 8-bit RGB. No image is ever held whole, except
// interlaced PNGs and (as coefficients) progressive JPEGs. Returns only the needed rows and
// columns; JPEGs can be decoded at a fraction of their size. Torch-free, thread-safe.
#pragma once

#include "tanren/data/image/header.h"

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace tanren {

// Pixels [x0, x1) × [y0, y1) of the stored image after division by `DecodeRequest::divisor`.
struct PixelBox {
  int64_t x0 = 0, y0 = 0, x1 = 0, y1 = 0;
};

struct DecodeRequest {
  ImageHeader header;
  int64_t divisor =
      1;  // 1, 2, 4, 8 for JPEGs: decoded at that fraction, ⌈size / divisor⌉; 1 for PNGs
  PixelBox need;
};

// Called once for each row y of the box; `pixels` are its (x1 - x0) × 3 bytes.
using RowSink = std::function<void(int64_t y, const uint8_t* pixels)>;

// Decodes the box. Palette, grey and 16-bit images become 8-bit RGB; alpha is dropped (as PIL's
// convert("RGB") does); CMYK is multiplied out, inverted if an Adobe mark says so. `rows` is
// scratch memory, reused from call to call. BrokenImage for damaged data before the box's end.
void decode_image(std::string_view bytes, const DecodeRequest& request, std::vector<uint8_t>& rows,
                  const RowSink& sink);

// One source file each.
void decode_jpeg(std::string_view bytes, const DecodeRequest& request, std::vector<uint8_t>& rows,
                 const RowSink& sink);
void decode_png(std::string_view bytes, const DecodeRequest& request, std::vector<uint8_t>& rows,
                const RowSink& sink);

}  // namespace tanren
