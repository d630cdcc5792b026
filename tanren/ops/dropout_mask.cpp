#include "tanren/ops/dropout_mask.h"

#include "tanren/base/error.h"
#include "tanren/base/operator_record.h"
#include "tanren/base/text.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/ops/draw.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <limits>

namespace tanren {

const RandomScope& attention_scope_for(at::IntArrayRef sizes, double p) {
  constexpr int64_t kMostRows = std::numeric_limits<int64_t>::max() / kRowDraws;
  const int64_t rows = sizes[1] * sizes[2];
  if (rows > kMostRows) {
    throw Error(
        fmt::format("[ops] attention with dropout of {} heads × {} tokens; at most 2^29 rows are "
                    "supported, or set attention_dropout to 0",
                    sizes[1], sizes[2]));
  }
  return scope_for(sizes, p);
}

namespace {

at::Tensor count_to(int64_t count, at::Device device) {
  return at::arange(count, at::TensorOptions(at::kLong).device(device));
}

// The 4 draws of Philox block `block` of sample `id` in a new last dim, int64. `block` and `id` are
// int64 and broadcast.
at::Tensor draws_of(uint64_t key, const at::Tensor& block, const at::Tensor& id) {
  constexpr int64_t kLow = 0xFFFFFFFF;
  // int64 products wrap modulo 2^64, so the upper half is right after the mask.
  const auto high = [](const at::Tensor& t) { return at::bitwise_right_shift(t, 32) & kLow; };
  at::Tensor c0 = block & kLow;
  at::Tensor c1 = high(block);
  at::Tensor c2 = id & kLow;
  at::Tensor c3 = high(id);
  auto key0 = static_cast<uint32_t>(key);
  auto key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const at::Tensor a = c0 * int64_t{0xD2511F53};
    const at::Tensor b = c2 * int64_t{0xCD9E8D57};
    c0 = high(b) ^ c1 ^ static_cast<int64_t>(key0);
    c1 = b & kLow;
    c2 = high(a) ^ c3 ^ static_cast<int64_t>(key1);
    c3 = a & kLow;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return at::stack({c0, c1, c2, c3}, -1);
}

// The first Philox block of each row [rows of a sample] of a mask.
at::Tensor first_blocks(at::IntArrayRef sizes, at::Device device) {
  const int64_t heads = sizes[1], rows = sizes[2];
  const at::Tensor row = count_to(rows, device) * heads + count_to(heads, device).unsqueeze(1);
  return row.flatten() * (kRowDraws / 4);
}

// Rows of a sample and columns of a row of a mask of shape `sizes`.
std::pair<int64_t, int64_t> rows_of(at::IntArrayRef sizes, bool is_attention) {
  if (is_attention) return {sizes[1] * sizes[2], sizes[3]};
  return {1, sizes[0] == 0 ? 0 : c10::multiply_integers(sizes) / sizes[0]};
}

DropoutDraw draw_for(const at::Tensor& ids, at::IntArrayRef sizes, int64_t key, int64_t threshold) {
  const auto bits = static_cast<uint64_t>(key);
  return {{static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)},
          static_cast<uint32_t>(threshold),
          ids.const_data_ptr<int64_t>(),
          sizes[0],
          rows_of(sizes, /*is_attention=*/false).second};
}

// The CPU's kernel.
at::Tensor mask_on_cpu(const at::Tensor& ids, at::IntArrayRef sizes, int64_t key, int64_t threshold,
                       bool is_attention) {
  at::Tensor mask = at::empty(sizes, at::kBool);
  if (is_dry(mask)) return mask;
  const OperatorRecord record("tanren::dropout_mask", mask);
  const at::Tensor dense = ids.contiguous();
  const DropoutDraw draw = draw_for(dense, sizes, key, threshold);
  if (is_attention) {
    draw_attention_mask(draw, sizes[1], sizes[2], kRowDraws, mask.mutable_data_ptr<bool>());
  } else {
    draw_mask(draw, mask.mutable_data_ptr<bool>());
  }
  return mask;
}

TORCH_LIBRARY(tanren, m) {
  m.def(
      "dropout_mask(Tensor ids, int[] sizes, int key, int threshold, bool is_attention) -> Tensor");
}
TORCH_LIBRARY_IMPL(tanren, CPU, m) { m.impl("dropout_mask", &mask_on_cpu); }
TORCH_LIBRARY_IMPL(tanren, CompositeExplicitAutograd, m) {
  m.impl("dropout_mask", &dropout_mask_reference);
}

at::Tensor mask_on(at::Device device, const RandomScope& scope, at::IntArrayRef sizes, double p,
                   uint64_t site, bool is_attention) {
  const MaskKey key = mask_key(scope, p, site);
  const auto bits = static_cast<int64_t>(key.key);
  if (device.is_cpu()) return mask_on_cpu(scope.ids(), sizes, bits, key.threshold, is_attention);
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("tanren::dropout_mask", "")
                             .typed<decltype(mask_on_cpu)>();
  return op.call(scope.ids_on(device), sizes, bits, key.threshold, is_attention);
}

}  // namespace

at::Tensor dropout_mask_reference(const at::Tensor& ids, at::IntArrayRef sizes, int64_t key,
                                  int64_t threshold, bool is_attention) {
  const auto [rows, columns] = rows_of(sizes, is_attention);
  const at::Device device = ids.device();
  const at::Tensor first = is_attention
                               ? first_blocks(sizes, device)
                               : at::zeros({1}, at::TensorOptions(at::kLong).device(device));
  const at::Tensor blocks = first.unsqueeze(1) + count_to((columns + 3) / 4, device);
  return draws_of(static_cast<uint64_t>(key), blocks.unsqueeze(0), ids.view({-1, 1, 1}))
      .flatten(2)
      .narrow(2, 0, columns)
      .ge(threshold)
      .reshape(sizes);
}

at::Tensor dropout_mask(at::IntArrayRef sizes, double p, uint64_t site, at::Device device) {
  return mask_on(device, scope_for(sizes, p), sizes, p, site, /*is_attention=*/false);
}

at::Tensor attention_mask(at::IntArrayRef sizes, double p, uint64_t site, at::Device device) {
  return mask_on(device, attention_scope_for(sizes, p), sizes, p, site, /*is_attention=*/true);
}

}  // namespace tanren
