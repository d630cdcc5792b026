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

// Calls expand(begin, end) for parts of the ids on several threads, each once its ids are known to
// be rows of the table.
template <class F>
void for_rows(const at::Tensor& ids, int64_t rows, int64_t width, const F& expand) {
  const auto* id = ids.const_data_ptr<int64_t>();
  const int64_t grain = std::max<int64_t>(1, kExpandGrain / width);
  parallel_for(0, ids.numel(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (id[i] >= 0 && id[i] < rows) continue;
      throw Error(
          fmt::format("[ops] quantized_embedding of id {} in a table of {} rows; give ids "
                      "from 0 to {}",
                      id[i], rows, rows - 1));
    }
    expand(begin, end);
  });
}

template <class T>
void expand_rows(const QuantizedWeight& weight, const at::Tensor& ids, T* out) {
  const int64_t width = weight.row(), groups = weight.groups(), group = weight.group();
  const auto* values = weight.values.const_data_ptr<int8_t>();
  const auto* scales = weight.scales.const_data_ptr<float>();
  const auto* id = ids.const_data_ptr<int64_t>();
  for_rows(ids, weight.out(), width, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t part = 0; part < groups; ++part) {
        expand_row(values + id[i] * width + part * group, scales[id[i] * groups + part], group,
                   out + i * width + part * group);
      }
    }
  });
}

template <class T>
void expand_rows(const PackedWeight& weight, const at::Tensor& ids, T* out) {
  const int64_t width = weight.in, groups = weight.groups(), group = width / groups;
  const auto* scales = weight.scales.const_data_ptr<float>();
  const auto* id = ids.const_data_ptr<int64_t>();
  for_rows(ids, weight.out, width, [&](int64_t begin, int64_t end) {
    std::vector<int8_t> row(static_cast<size_t>(weight.depth()));
    for (int64_t i = begin; i < end; ++i) {
      read_channel(weight, id[i], row.data());
      for (int64_t part = 0; part < groups; ++part) {
        expand_row(row.data() + part * group, scales[part * weight.out + id[i]], group,
                   out + i * width + part * group);
      }
    }
  });
}

// `dims`: of the table.
template <class Weight>
at::Tensor expanded_rows(const Weight& weight, int64_t dims, int64_t width, const at::Tensor& ids,
                         at::ScalarType dtype) {
  const bool whole = ids.scalar_type() == at::kLong || ids.scalar_type() == at::kInt;
  if (dims != 2 || !ids.device().is_cpu() || !whole ||
      (dtype != at::kFloat && dtype != at::kBFloat16)) {
    throw Error(fmt::format(
        "[ops] quantized_embedding of {} ids on {} in a table of {} dims to {}; "
        "give int64 on the CPU, 2 dims, and fp32 or bf16",
        c10::toString(ids.scalar_type()), ids.device().str(), dims, c10::toString(dtype)));
  }
  const at::Tensor rows = ids.to(at::kLong).contiguous();
  std::vector<int64_t> sizes = ids.sizes().vec();
  sizes.push_back(width);
  at::Tensor out = at::empty(sizes, weight.scales.options().dtype(dtype));
  const OperatorRecord record("tanren::quantized_embedding", rows, out);
  if (is_dry(out)) return out;
  if (dtype == at::kBFloat16) {
    expand_rows(weight, rows, out.template mutable_data_ptr<c10::BFloat16>());
  } else {
    expand_rows(weight, rows, out.template mutable_data_ptr<float>());
  }
  return out;
}

}  // namespace

at::Tensor quantized_embedding(const QuantizedWeight& weight, const at::Tensor& ids,
                               at::ScalarType dtype) {
  return expanded_rows(weight, weight.values.dim(), weight.row(), ids, dtype);
}

at::Tensor quantized_embedding(const PackedWeight& weight, const at::Tensor& ids,
                               at::ScalarType dtype) {
  return expanded_rows(weight, 2, weight.in, ids, dtype);
}

}  // namespace tanren
