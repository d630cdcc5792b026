#include "tanren/ops/image_columns.h"

#include <algorithm>

namespace tanren {

void image_columns(const Patches& shape, const c10::BFloat16* images, int64_t begin, int64_t end,
                   c10::BFloat16* columns) {
  const int64_t c = shape.channels, line = shape.kernel * c;
  c10::BFloat16* to = columns + begin * shape.out_width * shape.kernel * line;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t image = row / shape.out_height;
    const int64_t top = row % shape.out_height * shape.stride - shape.padding;
    for (int64_t column = 0; column < shape.out_width; ++column) {
      const int64_t left = column * shape.stride - shape.padding;
      // The part [first, last) of a line of the patch lies inside the image, in one piece of
      // memory.
      const int64_t first = std::clamp<int64_t>(-left, 0, shape.kernel);
      const int64_t last = std::clamp<int64_t>(shape.width - left, first, shape.kernel);
      for (int64_t k = 0; k < shape.kernel; ++k, to += line) {
        const int64_t y = top + k;
        if (y < 0 || y >= shape.height) {
          std::fill(to, to + line, c10::BFloat16(0.0f));
          continue;
        }
        const c10::BFloat16* from = images + ((image * shape.height + y) * shape.width + left) * c;
        std::fill(to, to + first * c, c10::BFloat16(0.0f));
        std::copy(from + first * c, from + last * c, to + first * c);
        std::fill(to + last * c, to + line, c10::BFloat16(0.0f));
      }
    }
  }
}

}  // namespace tanren
