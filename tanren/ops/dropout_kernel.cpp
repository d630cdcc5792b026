#include "tanren/ops/dropout_kernel.h"

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <type_traits>

namespace tanren {
namespace {

constexpr int64_t kLanes = 16;            // Philox blocks drawn side by side
constexpr int64_t kGroup = 4 * kLanes;    // elements of such a group
constexpr int64_t kChunk = 16 * kGroup;   // elements of one unit of parallel work
constexpr int64_t kGrain = 32;            // units below which one thread is faster

// kGroup draws from block `first` on, in element order; the same numbers as philox() of
// base/random.h, with the lanes as the inner loop so that the compiler vectorises them.
[[gnu::always_inline]] inline void draw_group(const DropoutDraw& draw, uint32_t first, int64_t id,
                                              uint32_t* __restrict values) {
  uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    c0[lane] = first + static_cast<uint32_t>(lane);
    c1[lane] = 0;
    c2[lane] = static_cast<uint32_t>(id);
    c3[lane] = static_cast<uint32_t>(static_cast<uint64_t>(id) >> 32);
  }
  uint32_t key0 = draw.key[0];
  uint32_t key1 = draw.key[1];
  for (int round = 0; round < 10; ++round) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const uint64_t a = 0xD2511F53ull * c0[lane];
      const uint64_t b = 0xCD9E8D57ull * c2[lane];
      c0[lane] = static_cast<uint32_t>(b >> 32) ^ c1[lane] ^ key0;
      c1[lane] = static_cast<uint32_t>(b);
      c2[lane] = static_cast<uint32_t>(a >> 32) ^ c3[lane] ^ key1;
      c3[lane] = static_cast<uint32_t>(a);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    values[4 * lane] = c0[lane];
    values[4 * lane + 1] = c1[lane];
    values[4 * lane + 2] = c2[lane];
    values[4 * lane + 3] = c3[lane];
  }
}

// Elements [begin, end) of sample `i`; begin is a multiple of kGroup. `write(element, value)`.
template <typename Write>
[[gnu::always_inline]] inline void draw_chunk(const DropoutDraw& draw, int64_t i, int64_t begin,
                                              int64_t end, const Write& write) {
  alignas(64) uint32_t values[kGroup];
  const int64_t offset = i * draw.sample_size;
  for (int64_t at = begin; at < end; at += kGroup) {
    draw_group(draw, static_cast<uint32_t>(at / 4), draw.ids[i], values);
    const int64_t count = std::min(kGroup, end - at);
    for (int64_t e = 0; e < count; ++e) write(offset + at + e, values[e]);
  }
}

template <typename Write>
[[gnu::target("avx2")]] void draw_chunk_avx2(const DropoutDraw& draw, int64_t i, int64_t begin,
                                             int64_t end, const Write& write) {
  draw_chunk(draw, i, begin, end, write);
}

template <typename Write>
void for_each_draw(const DropoutDraw& draw, const Write& write) {
  static const bool has_avx2 = __builtin_cpu_supports("avx2") > 0;
  const int64_t units = (draw.sample_size + kChunk - 1) / kChunk;
  at::parallel_for(0, draw.samples * units, kGrain, [&](int64_t first, int64_t last) {
    for (int64_t unit = first; unit < last; ++unit) {
      const int64_t begin = unit % units * kChunk;
      const int64_t end = std::min(begin + kChunk, draw.sample_size);
      if (has_avx2) {
        draw_chunk_avx2(draw, unit / units, begin, end, write);
      } else {
        draw_chunk(draw, unit / units, begin, end, write);
      }
    }
  });
}

}  // namespace

void draw_mask(const DropoutDraw& draw, bool* mask) {
  const uint32_t threshold = draw.threshold;
  for_each_draw(draw, [=](int64_t at, uint32_t value) { mask[at] = value >= threshold; });
}

template <typename T>
void apply_dropout(const DropoutDraw& draw, double scale, const T* x, T* out, bool* mask) {
  using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto factor = static_cast<Number>(scale);
  const uint32_t threshold = draw.threshold;
  for_each_draw(draw, [=](int64_t at, uint32_t value) {
    const bool kept = value >= threshold;
    mask[at] = kept;
    // A product, not a choice: a NaN or inf must stay visible to the guard.
    out[at] = static_cast<T>(static_cast<Number>(x[at]) * (kept ? factor : Number{0}));
  });
}

template void apply_dropout(const DropoutDraw&, double, const float*, float*, bool*);
template void apply_dropout(const DropoutDraw&, double, const double*, double*, bool*);
template void apply_dropout(const DropoutDraw&, double, const c10::Half*, c10::Half*, bool*);
template void apply_dropout(const DropoutDraw&, double, const c10::BFloat16*, c10::BFloat16*,
                            bool*);

}  // namespace tanren
