#include "tanren/model/image_input.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace tanren {

int64_t image_channels(const DataInfo& info, const std::string& kind, int64_t min_edge) {
  const auto& shape = info.input_shape;
  const size_t dims = shape.size();
  if ((dims != 2 && dims != 3) || info.vocab_size > 0) {
    throw ConfigError(
        fmt::format("[model] {} needs images [channels, height, width] or [height, width], inputs "
                    "have shape [{}]; set data.train.kind = \"images\" or data.train.shape",
                    kind, fmt::join(shape, ", ")));
  }
  if (dims == 3 && shape[0] == kAnySize) {
    throw ConfigError(fmt::format(
        "[model] {} needs images of one number of channels, and this data's vary", kind));
  }
  const auto is_small = [&](int64_t edge) { return edge != kAnySize && edge < min_edge; };
  if (is_small(shape[dims - 2]) || is_small(shape[dims - 1])) {
    throw ConfigError(
        fmt::format("[model] {} halves an image five times and needs {} × {} pixels or more, this "
                    "data's have {} × {}; raise data.train.size",
                    kind, min_edge, min_edge, shape[dims - 2], shape[dims - 1]));
  }
  return dims == 3 ? shape[0] : 1;
}

at::Tensor with_channels(const at::Tensor& x) { return x.dim() == 3 ? x.unsqueeze(1) : x; }

void throw_unknown_size(const std::string& size, const std::vector<std::string>& known) {
  const std::string near = nearest(size, known);
  throw ConfigError(
      fmt::format("[model] size '{}' is unknown; {}", size,
                  near.empty() ? "there are " + join(known) : "did you mean '" + near + "'?"));
}

}  // namespace tanren
