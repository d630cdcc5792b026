#include "tanren/ops/dropout_kernel.h"

#include "tanren/ops/parallel_for.h"
#include "tanren/ops/philox_group.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <type_traits>

namespace tanren {
namespace {

constexpr int64_t kChunk = 16 * kGroup;  // elements of one unit of parallel work
constexpr int64_t kGrain = 32;           // units below which one thread is faster

// Calls write(first, count, values) for every run of up to kGroup adjacent elements; `values` are
// the draws of the elements first … first + count - 1 of the whole tensor.
template <typename Write>
void for_each_group(const DropoutDraw& draw, const Write& write) {
  const DrawGroup draw_group = best_draw_group();
  const int64_t units = (draw.sample_size + kChunk - 1) / kChunk;
  parallel_for(0, draw.samples * units, kGrain, [&](int64_t first, int64_t last) {
    alignas(64) uint32_t values[kGroup];
    for (int64_t unit = first; unit < last; ++unit) {
      const int64_t sample = unit / units;
      const int64_t begin = unit % units * kChunk;
      const int64_t end = std::min(begin + kChunk, draw.sample_size);
      for (int64_t at = begin; at < end; at += kGroup) {
        draw_group(draw.key, static_cast<uint64_t>(at / 4), draw.ids[sample], values);
        write(sample * draw.sample_size + at, std::min(kGroup, end - at), values);
      }
    }
  });
}

}  // namespace

void draw_mask(const DropoutDraw& draw, bool* mask) {
  const uint32_t threshold = draw.threshold;
  for_each_group(draw, [=](int64_t first, int64_t count, const uint32_t* values) {
    for (int64_t e = 0; e < count; ++e) mask[first + e] = values[e] >= threshold;
  });
}

void draw_attention_mask(const DropoutDraw& draw, int64_t heads, int64_t rows, int64_t row_draws,
                         bool* mask) {
  const DrawGroup draw_group = best_draw_group();
  const int64_t of_sample = heads * rows;
  const int64_t columns = of_sample == 0 ? 0 : draw.sample_size / of_sample;
  const uint32_t threshold = draw.threshold;
  parallel_for(0, draw.samples * of_sample, kGrain, [&](int64_t first, int64_t last) {
    alignas(64) uint32_t values[kGroup];
    for (int64_t row = first; row < last; ++row) {
      const int64_t head = row % of_sample / rows, place = row % rows;
      const auto start = static_cast<uint64_t>((place * heads + head) * (row_draws / 4));
      for (int64_t at = 0; at < columns; at += kGroup) {
        draw_group(draw.key, start + static_cast<uint64_t>(at / 4), draw.ids[row / of_sample],
                   values);
        bool* kept = mask + row * columns + at;
        const int64_t count = std::min(kGroup, columns - at);
        for (int64_t e = 0; e < count; ++e) kept[e] = values[e] >= threshold;
      }
    }
  });
}

template <typename T>
void apply_dropout(const DropoutDraw& draw, double scale, const T* x, T* out, bool* mask) {
  using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto factor = static_cast<Number>(scale);
  const uint32_t threshold = draw.threshold;
  for_each_group(draw, [=](int64_t first, int64_t count, const uint32_t* values) {
    const T* __restrict from = x + first;
    T* __restrict to = out + first;
    bool* __restrict kept = mask + first;
    for (int64_t e = 0; e < count; ++e) kept[e] = values[e] >= threshold;
    // A product instead of a select, so that the guard still sees a NaN or inf.
    for (int64_t e = 0; e < count; ++e) {
      const Number keep = values[e] >= threshold ? factor : Number{0};
      to[e] = static_cast<T>(static_cast<Number>(from[e]) * keep);
    }
  });
}

template <typename T, typename R>
void add_dropout_rows(const DropoutDraw& draw, double scale, const R* residual, const T* x, R* out,
                      bool* mask) {
  const auto factor = static_cast<R>(scale);
  const uint32_t threshold = draw.threshold;
  for_each_group(draw, [=](int64_t first, int64_t count, const uint32_t* values) {
    const T* __restrict from = x + first;
    const R* __restrict base = residual + first;
    R* __restrict to = out + first;
    if (mask != nullptr) {
      bool* __restrict kept = mask + first;
      for (int64_t e = 0; e < count; ++e) kept[e] = values[e] >= threshold;
    }
    for (int64_t e = 0; e < count; ++e) {
      // The dropped value is rounded to T before the sum, as by dropout() followed by a sum.
      const R dropped = static_cast<R>(from[e]) * (values[e] >= threshold ? factor : R{0});
      to[e] = base[e] + static_cast<R>(static_cast<T>(dropped));
    }
  });
}

template <typename T, typename R>
void add_dropout_gradient(int64_t count, double scale, const R* gradient, const bool* mask,
                          T* out) {
  const auto factor = static_cast<R>(scale);
  parallel_for(0, count, 32 * kChunk, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      out[i] = static_cast<T>(gradient[i] * (mask[i] ? factor : R{0}));
    }
  });
}

// NOLINTBEGIN(bugprone-macro-parentheses): types
#define TANREN_ADD_DROPOUT(T, R)                                                             \
  template void add_dropout_rows(const DropoutDraw&, double, const R*, const T*, R*, bool*); \
  template void add_dropout_gradient(int64_t, double, const R*, const bool*, T*)
// NOLINTEND(bugprone-macro-parentheses)
TANREN_ADD_DROPOUT(float, float);
TANREN_ADD_DROPOUT(double, double);
TANREN_ADD_DROPOUT(c10::Half, float);
TANREN_ADD_DROPOUT(c10::BFloat16, float);
#undef TANREN_ADD_DROPOUT

template void apply_dropout(const DropoutDraw&, double, const float*, float*, bool*);
template void apply_dropout(const DropoutDraw&, double, const double*, double*, bool*);
template void apply_dropout(const DropoutDraw&, double, const c10::Half*, c10::Half*, bool*);
template void apply_dropout(const DropoutDraw&, double, const c10::BFloat16*, c10::BFloat16*,
                            bool*);

}  // namespace tanren
