#include "tanren/data/image/resize.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace tanren {

namespace {

// The loops below are compiled for AVX2 too; the variant is chosen when the program starts. With
// -std=c++20 the compiler fuses no multiplication with an addition, so both variants give the same
// bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TANREN_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define TANREN_CLONES
#endif

TANREN_CLONES void set_row(float* __restrict sums, const uint8_t* __restrict row, size_t count,
                           float weight) {
  for (size_t i = 0; i < count; ++i) sums[i] = weight * static_cast<float>(row[i]);
}

TANREN_CLONES void add_row(float* __restrict sums, const uint8_t* __restrict row, size_t count,
                           float weight) {
  for (size_t i = 0; i < count; ++i) sums[i] += weight * static_cast<float>(row[i]);
}

TANREN_CLONES void set_row(float* __restrict sums, const float* __restrict row, size_t count,
                           float weight) {
  for (size_t i = 0; i < count; ++i) sums[i] = weight * row[i];
}

TANREN_CLONES void add_row(float* __restrict sums, const float* __restrict row, size_t count,
                           float weight) {
  for (size_t i = 0; i < count; ++i) sums[i] += weight * row[i];
}

TANREN_CLONES void to_luma(const uint8_t* __restrict rgb, uint8_t* __restrict luma, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    luma[i] = static_cast<uint8_t>(
        (rgb[3 * i] * 19595u + rgb[3 * i + 1] * 38470u + rgb[3 * i + 2] * 7471u + 0x8000u) >> 16);
  }
}

using Float4 = float __attribute__((vector_size(16)));

// Resizes one row horizontally. A pixel has four floats, of which three are used, so that it is one
// vector.
TANREN_CLONES void across_rgb(const float* sums, const AxisTaps::Run* runs, size_t outputs,
                              const float* weights, int64_t first, float* line) {
  for (size_t i = 0; i < outputs; ++i) {
    const auto& run = runs[i];
    const float* weight = weights + run.weights;
    const float* pixel = sums + 3 * (run.first - first);
    Float4 sum = {0, 0, 0, 0};
    for (int64_t k = run.first; k < run.end; ++k, pixel += 3, ++weight) {
      Float4 value;
      std::memcpy(&value, pixel, sizeof(value));
      sum += *weight * value;
    }
    std::memcpy(line + 4 * i, &sum, sizeof(sum));
  }
}

using Int4 = int32_t __attribute__((vector_size(16)));

// Writes four numbers a pixel: first the `colours` values, then 0.
void widen(const uint8_t* row, size_t pixels, size_t colours, int32_t* wide) {
  for (size_t i = 0; i < pixels; ++i) {
    for (size_t c = 0; c < 4; ++c) wide[4 * i + c] = c < colours ? row[colours * i + c] : 0;
  }
}

// Resizes one row horizontally and rounds to whole levels in [0, 255].
TANREN_CLONES void across_levels(const int32_t* wide, const AxisTaps::Run* runs, size_t outputs,
                                 const int32_t* weights, int64_t first, float* line) {
  constexpr int32_t kHalf = 1 << (AxisTaps::kFixedBits - 1);
  for (size_t i = 0; i < outputs; ++i) {
    const int32_t* weight = weights + runs[i].weights;
    const int32_t* pixel = wide + 4 * (runs[i].first - first);
    Int4 sum = {kHalf, kHalf, kHalf, kHalf};
    for (int64_t k = runs[i].first; k < runs[i].end; ++k, pixel += 4, ++weight) {
      Int4 value;
      std::memcpy(&value, pixel, sizeof(value));
      sum += *weight * value;
    }
    for (int c = 0; c < 4; ++c) {
      const int32_t level = sum[c] >> AxisTaps::kFixedBits;
      line[4 * i + static_cast<size_t>(c)] = static_cast<float>(level < 0     ? 0
                                                                : level > 255 ? 255
                                                                              : level);
    }
  }
}

void across_luma(const float* sums, const AxisTaps::Run* runs, size_t outputs, const float* weights,
                 int64_t first, float* line) {
  for (size_t i = 0; i < outputs; ++i) {
    const float* weight = weights + runs[i].weights;
    float sum = 0;
    for (int64_t k = runs[i].first; k < runs[i].end; ++k) sum += *weight++ * sums[k - first];
    line[4 * i] = sum;
  }
}

// Kernels, at a distance in units of the step between outputs (or between inputs, if that is
// larger).
double triangle(double x) { return std::max(1 - std::abs(x), 0.0); }

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

}  // namespace

Axis Axis::mirrored(int64_t size) const {
  const double end = origin + static_cast<double>(outputs) * step;
  return {outputs, static_cast<double>(size) - end, step, size - high, size - low, !reversed};
}

Axis Axis::divided(int64_t divisor) const {
  const auto by = static_cast<double>(divisor);
  return {outputs, origin / by, step / by, low / divisor, (high + divisor - 1) / divisor, reversed};
}

void AxisTaps::set(const Axis& axis, Filter filter) {
  runs_.resize(static_cast<size_t>(axis.outputs));
  weights_.clear();
  fixed_.clear();
  first_ = axis.high;
  end_ = axis.low;
  const double scale = std::max(axis.step, 1.0);
  const double support = filter == Filter::bicubic ? 2 * scale : scale;  // half the kernel's width
  const auto kernel = filter == Filter::bicubic ? cubic : triangle;
  for (int64_t i = 0; i < axis.outputs; ++i) {
    const double centre = axis.origin + (static_cast<double>(i) + 0.5) * axis.step;
    auto& run = runs_[static_cast<size_t>(i)];
    run.weights = weights_.size();
    if (centre < static_cast<double>(axis.low) || centre > static_cast<double>(axis.high)) {
      // Outputs below the image have no inputs. They are finished with the last row that is needed.
      run.first = run.end = centre < static_cast<double>(axis.low) ? axis.low : end_;
      continue;
    }
    if (filter == Filter::nearest) {
      const double nearest = axis.reversed ? std::ceil(centre) - 1 : std::floor(centre);
      run.first = std::clamp(static_cast<int64_t>(nearest), axis.low, axis.high - 1);
      run.end = run.first + 1;
      weights_.push_back(1);
    } else {
      run.first = std::max(static_cast<int64_t>(std::floor(centre - support + 0.5)), axis.low);
      run.end = std::min(static_cast<int64_t>(std::floor(centre + support + 0.5)), axis.high);
      double total = 0;
      const auto weight = [&](int64_t k) {
        return kernel((static_cast<double>(k) + 0.5 - centre) / scale);
      };
      for (int64_t k = run.first; k < run.end; ++k) total += weight(k);
      for (int64_t k = run.first; k < run.end; ++k) {
        const double share = weight(k) / total;
        weights_.push_back(static_cast<float>(share));
        if (filter == Filter::bicubic) {
          fixed_.push_back(static_cast<int32_t>(std::lround(share * (1 << kFixedBits))));
        }
      }
    }
    first_ = std::min(first_, run.first);
    end_ = std::max(end_, run.end);
  }
  end_ = std::max(end_, first_);
}

void Resizer::start(const Axis& x, const Axis& y, int64_t colours, const PlaneTarget& target,
                    Filter filter) {
  x_.set(x, filter);
  y_.set(y, filter);
  filter_ = filter;
  colours_ = colours;
  target_ = target;
  next_ = 0;
  const auto& runs = y_.runs();
  slots_ = 1;
  for (size_t a = 0, b = 0; b < runs.size(); ++b) {
    while (runs[a].end <= runs[b].first && a < b) ++a;
    slots_ = std::max(slots_, b - a + 1);
  }
  const auto width = static_cast<size_t>(end_x() - first_x());
  const size_t row_size = width * static_cast<size_t>(colours);
  line_.resize(x_.runs().size() * 4);
  // The last pixel of a row is read as four floats.
  slot_size_ = is_across_first() ? line_.size() : row_size + 4;
  if (sums_.size() < slots_ * slot_size_) sums_.resize(slots_ * slot_size_);
  if (is_across_first() && wide_.size() < width * 4) wide_.resize(width * 4);
  luma_.resize(colours == 1 ? width : 0);
  while (next_ < runs.size() && runs[next_].end <= first_y()) finish(next_++);  // above the image
}

template <typename Value>
void Resizer::add(int64_t y, const Value* values) {
  const auto& runs = y_.runs();
  const size_t count =
      is_across_first() ? line_.size() : static_cast<size_t>((end_x() - first_x()) * colours_);
  for (size_t i = next_; i < runs.size() && runs[i].first <= y; ++i) {
    if (runs[i].end <= y) continue;
    float* sums = sums_.data() + i % slots_ * slot_size_;
    const float weight = y_.weights(runs[i])[y - runs[i].first];
    if (y == runs[i].first) {
      set_row(sums, values, count, weight);
    } else {
      add_row(sums, values, count, weight);
    }
  }
  while (next_ < runs.size() && runs[next_].end <= y + 1) finish(next_++);
}

void Resizer::row(int64_t y, const uint8_t* rgb) {
  const uint8_t* values = rgb;
  const auto width = static_cast<size_t>(end_x() - first_x());
  if (colours_ == 1) {
    to_luma(rgb, luma_.data(), width);
    values = luma_.data();
  }
  if (!is_across_first()) {
    add(y, values);
    return;
  }
  widen(values, width, static_cast<size_t>(colours_), wide_.data());
  across_levels(wide_.data(), x_.runs().data(), x_.runs().size(), x_.fixed(), first_x(),
                line_.data());
  add(y, line_.data());
}

void Resizer::finish(size_t output) {
  const auto& runs = x_.runs();
  float* to = target_.data + target_.start + static_cast<int64_t>(output) * target_.step_y;
  const auto outputs = static_cast<int64_t>(runs.size());
  const auto& down = y_.runs()[output];
  if (down.first == down.end) {  // outside the image
    for (int64_t c = 0; c < colours_; ++c) {
      for (int64_t i = 0; i < outputs; ++i) to[c * target_.plane + i * target_.step_x] = 0;
    }
    return;
  }
  const float* sums = sums_.data() + output % slots_ * slot_size_;
  if (is_across_first()) {
    for (int64_t c = 0; c < colours_; ++c) {
      float* plane = to + c * target_.plane;
      for (int64_t i = 0; i < outputs; ++i) {
        plane[i * target_.step_x] = std::clamp(sums[4 * i + c], 0.0F, 255.0F);
      }
    }
    return;
  }
  const auto across = colours_ == 1 ? across_luma : across_rgb;
  across(sums, runs.data(), runs.size(), x_.weights({}), first_x(), line_.data());
  for (int64_t c = 0; c < colours_; ++c) {
    float* plane = to + c * target_.plane;
    const float* line = line_.data() + c;
    for (int64_t i = 0; i < outputs; ++i) plane[i * target_.step_x] = line[4 * i];
  }
}

}  // namespace tanren
