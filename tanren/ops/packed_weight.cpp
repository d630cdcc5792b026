#include "tanren/ops/packed_weight.h"

#include "tanren/dry/dry_scope.h"
#include "tanren/ops/int8_gemm.h"
#include "tanren/ops/parallel_for.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace tanren {

PackedWeight pack_weight(const QuantizedWeight& weight) {
  const int64_t out = weight.out(), in = weight.row();
  const int64_t width = (out + 15) / 16 * 16, depth = (in + 3) / 4 * 4;
  PackedWeight packed{out, in, at::empty({width, depth}, weight.values.options()),
                      weight.scales.t().contiguous(), weight.sums.t().contiguous()};
  if (is_dry(packed.panels)) return packed;
  const auto* from = weight.values.const_data_ptr<int8_t>();
  auto* to = packed.panels.mutable_data_ptr<int8_t>();
  parallel_for(0, (width + kPanelWidth - 1) / kPanelWidth, 1, [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t first = panel * kPanelWidth, columns = std::min(kPanelWidth, width - first);
      pack_int8_columns(from + first * in, in, std::min(columns, out - first), in, columns,
                        to + first * depth);
    }
  });
  return packed;
}

void read_channel(const PackedWeight& weight, int64_t channel, int8_t* to) {
  const int64_t depth = weight.depth(), first = channel / kPanelWidth * kPanelWidth;
  const int64_t columns = std::min(kPanelWidth, weight.panels.size(0) - first);
  const auto* from = weight.panels.const_data_ptr<int8_t>() + first * depth + (channel - first) * 4;
  for (int64_t i = 0; i < depth; i += 4) std::memcpy(to + i, from + i * columns, 4);
}

at::Tensor unpacked_values(const PackedWeight& weight) {
  const int64_t depth = weight.depth();
  std::vector<at::Tensor> panels;
  for (int64_t first = 0; first < weight.panels.size(0); first += kPanelWidth) {
    const int64_t columns = std::min(kPanelWidth, weight.panels.size(0) - first);
    panels.push_back(weight.panels.narrow(0, first, columns)
                         .view({depth / 4, columns, 4})
                         .transpose(0, 1)
                         .reshape({columns, depth}));
  }
  return at::cat(panels).narrow(0, 0, weight.out).narrow(1, 0, weight.in).contiguous();
}

}  // namespace tanren
