#include "tanren/ops/quantized_embedding.h"

#include "tanren/base/error.h"
#include "tanren/base/operator_record.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/ops/int8_rows.h"
#include "tanren/ops/parallel_for.h"

#include <fmt/format.h>
#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

namespace tanren {
namespace {

constexpr int64_t kExpandGrain = 16384;  // elements

template <class T>
void expand_rows(const QuantizedWeight& weight, const int64_t* ids, int64_t count, T* out) {
  const int64_t width = weight.row(), groups = weight.groups(), group = weight.group();
  const auto* values = weight.values.const_data_ptr<int8_t>();
  const auto* scales = weight.scales.const_data_ptr<float>();
  const int64_t grain = std::max<int64_t>(1, kExpandGrain / width);
  parallel_for(0, count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t id = ids[i];
      if (id < 0 || id >= weight.out()) {
        throw Error(
            fmt::format("[ops] quantized_embedding of id {} in a table of {} rows; give ids "
                        "from 0 to {}",
                        id, weight.out(), weight.out() - 1));
      }
      for (int64_t part = 0; part < groups; ++part) {
        expand_row(values + id * width + part * group, scales[id * groups + part], group,
                   out + i * width + part * group);
      }
    }
  });
}

}  // namespace

at::Tensor quantized_embedding(const QuantizedWeight& weight, const at::Tensor& ids,
                               at::ScalarType dtype) {
  const bool whole = ids.scalar_type() == at::kLong || ids.scalar_type() == at::kInt;
  if (weight.values.dim() != 2 || !ids.device().is_cpu() || !whole ||
      (dtype != at::kFloat && dtype != at::kBFloat16)) {
    throw Error(
        fmt::format("[ops] quantized_embedding of {} ids on {} in a table of {} dims to {}; "
                    "give int64 on the CPU, 2 dims, and fp32 or bf16",
                    c10::toString(ids.scalar_type()), ids.device().str(), weight.values.dim(),
                    c10::toString(dtype)));
  }
  const at::Tensor rows = ids.to(at::kLong).contiguous();
  std::vector<int64_t> sizes = ids.sizes().vec();
  sizes.push_back(weight.row());
  const at::Tensor out = at::empty(sizes, weight.scales.options().dtype(dtype));
  const OperatorRecord record("tanren::quantized_embedding", rows, out);
  if (is_dry(out)) return out;
  const auto* from = rows.const_data_ptr<int64_t>();
  if (dtype == at::kBFloat16) {
    expand_rows(weight, from, rows.numel(), out.mutable_data_ptr<c10::BFloat16>());
  } else {
    expand_rows(weight, from, rows.numel(), out.mutable_data_ptr<float>());
  }
  return out;
}

}  // namespace tanren
