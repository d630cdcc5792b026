#include "tanren/quantize/range_tracker.h"

#include "tanren/base/error.h"

#include <fmt/format.h>
#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace tanren {
namespace {

constexpr uint32_t kSignBit = 0x80000000U, kLargestFinite = 0x7f7fffffU;
constexpr uint32_t kDroppedBits = 13;  // of the 23 of fp32's fraction; 10 stay
constexpr uint32_t kInOctave = 1U << (23 - kDroppedBits);
constexpr size_t kOctaves = 256;  // exponents of fp32

constexpr double kLevels = 255;  // steps from the first byte to the last
constexpr float kSmallest = std::numeric_limits<float>::min();

float scale_of_width(double width) { return std::max(static_cast<float>(width), kSmallest); }

// The scale is the number divided by a power of two, so that the number is exact.
InputScale scale_of_constant(float number) {
  if (number == 0) return {.scale = 1, .zero_point = 0};
  const float size = std::abs(number);
  // The number is in the middle of the bytes, so that numbers around it have bytes, too.
  const float scale = size / 128 >= kSmallest ? size / 128 : std::max(size, kSmallest);
  return {.scale = scale, .zero_point = number < 0 ? 255 : 0};
}

InputScale scale_of_range(double low, double high) {
  const float scale = scale_of_width((high - low) / kLevels);
  return {.scale = scale,
          .zero_point = static_cast<int32_t>(
              std::clamp(std::nearbyint(-low / static_cast<double>(scale)), 0.0, kLevels))};
}

// Searches for the scale and zero point with the least squared error. The zero point does not
// change to which multiple of the scale a number is rounded. It only shifts the range, and thereby
// which numbers are clamped. Each scale therefore takes one pass over the bins, and the errors of
// all zero points follow from prefix sums.
class RangeSearch {
 public:
  explicit RangeSearch(const std::vector<NumberCounts::Bin>& bins)
      : bins_(bins), level_(bins.size()), rounding_(bins.size() + 1), sums_(bins.size() + 1) {
    for (size_t i = 0; i < bins.size(); ++i) {
      const auto [value, count] = bins[i];
      sums_[i + 1] = {sums_[i].count + count, sums_[i].first + count * value,
                      sums_[i].second + count * value * value};
    }
  }

  InputScale best(double low, double high) {
    const double full = (high - low) / kLevels;
    consider_parts(full, 0, kCoarse * kHalvings, kCoarse);
    const double around = static_cast<double>(best_step_) / static_cast<double>(best_per_octave_);
    const auto middle = static_cast<int64_t>(std::lround(around * kFine));
    constexpr int64_t kReach = kFine / kCoarse;
    consider_parts(full, std::max<int64_t>(middle - kReach, 0), middle + kReach, kFine);
    return best_;
  }

 private:
  // kCoarse and kFine: steps per halving of the range. kHalvings: the smallest range is a 256th of
  // the whole, because a smaller one pays only for more than 1e8 numbers of which one is far away.
  static constexpr int64_t kCoarse = 16, kFine = 256, kHalvings = 8;

  struct Sums {
    double count = 0, first = 0, second = 0;  // of the numbers and their squares
  };

  void consider_parts(double full, int64_t begin, int64_t end, int64_t per_octave) {
    for (int64_t step = begin; step <= end; ++step) {
      const double halvings = static_cast<double>(step) / static_cast<double>(per_octave);
      if (!consider(scale_of_width(full * std::exp2(-halvings)))) continue;
      best_step_ = step;
      best_per_octave_ = per_octave;
    }
  }

  // Whether the scale, with its best zero point, is better than the best one so far.
  bool consider(float scale) {
    const auto wide = static_cast<double>(scale);
    for (size_t i = 0; i < bins_.size(); ++i) {
      const auto [value, count] = bins_[i];
      level_[i] = std::nearbyint(value / wide);
      const double error = value - level_[i] * wide;
      rounding_[i + 1] = rounding_[i] + count * error * error;
    }
    bool is_better = false;
    for (int32_t zero_point = 0; zero_point <= 255; ++zero_point) {
      const double first = -zero_point, last = kLevels - zero_point;
      const size_t begin = place(std::lower_bound(level_.begin(), level_.end(), first));
      const size_t end = place(std::upper_bound(level_.begin(), level_.end(), last));
      const double error = clamped(0, begin, first * wide) + rounding_[end] - rounding_[begin] +
                           clamped(end, bins_.size(), last * wide);
      if (!(error < least_)) continue;
      least_ = error;
      best_ = {.scale = scale, .zero_point = zero_point};
      is_better = true;
    }
    return is_better;
  }

  size_t place(std::vector<double>::const_iterator found) const {
    return static_cast<size_t>(found - level_.cbegin());
  }

  // The squared error of the bins [begin, end) if they all become `value`.
  double clamped(size_t begin, size_t end, double value) const {
    const Sums &a = sums_[begin], &b = sums_[end];
    return (b.second - a.second) - 2 * value * (b.first - a.first) +
           value * value * (b.count - a.count);
  }

  const std::vector<NumberCounts::Bin>& bins_;
  std::vector<double> level_;     // of each bin, rounded, in units of the scale
  std::vector<double> rounding_;  // squared error of rounding, of all bins before
  std::vector<Sums> sums_;        // of all bins before
  InputScale best_;
  double least_ = std::numeric_limits<double>::infinity();
  int64_t best_step_ = 0, best_per_octave_ = 1;
};

}  // namespace

void NumberCounts::add(const float* numbers, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(numbers[i]);
    const uint32_t rounded = (bits & ~kSignBit) + (1U << (kDroppedBits - 1));
    const uint32_t index = std::min(rounded, kLargestFinite) >> kDroppedBits;
    const size_t octave = (bits < kSignBit ? kOctaves : 0) + index / kInOctave;
    auto& counts = octaves_[octave];
    if (counts.empty()) counts.resize(kInOctave);
    ++counts[index % kInOctave];
  }
}

std::vector<NumberCounts::Bin> NumberCounts::bins() const {
  std::vector<Bin> all;
  const auto take = [&](size_t octave, uint32_t place, double sign) {
    const auto& counts = octaves_[octave];
    if (counts.empty() || counts[place] == 0) return;
    const auto index = static_cast<uint32_t>(octave % kOctaves) * kInOctave + place;
    const auto size = std::bit_cast<float>(index << kDroppedBits);
    all.push_back({sign * static_cast<double>(size), static_cast<double>(counts[place])});
  };
  for (size_t octave = kOctaves; octave-- > 0;) {
    for (uint32_t place = kInOctave; place-- > 0;) take(octave, place, -1);
  }
  for (size_t octave = kOctaves; octave < 2 * kOctaves; ++octave) {
    for (uint32_t place = 0; place < kInOctave; ++place) take(octave, place, 1);
  }
  return all;
}

void RangeTracker::add(const at::Tensor& x) {
  if (x.numel() == 0) return;
  const at::Tensor numbers = x.detach().to(at::kCPU, at::kFloat).contiguous();
  const auto [least, most] = at::aminmax(numbers);
  const float low = least.item<float>(), high = most.item<float>();
  if (!std::isfinite(low) || !std::isfinite(high)) {
    throw InputError(
        fmt::format("[quantize] the input of {} has a number that is not finite; look at the data "
                    "and the weights before it",
                    name_));
  }
  lowest_ = has_seen_ ? std::min(lowest_, low) : low;
  highest_ = has_seen_ ? std::max(highest_, high) : high;
  has_seen_ = true;
  if (kind_ == RangeKind::mse) counts_.add(numbers.const_data_ptr<float>(), numbers.numel());
}

InputScale RangeTracker::scale() const {
  if (!has_seen_) {
    throw Error(fmt::format("[quantize] the input of {} was never seen; keep it as it is", name_));
  }
  if (lowest_ == highest_) return scale_of_constant(lowest_);
  const double low = std::min(lowest_, 0.0F), high = std::max(highest_, 0.0F);
  if (kind_ == RangeKind::minmax) return scale_of_range(low, high);
  const auto bins = counts_.bins();
  return RangeSearch(bins).best(low, high);
}

}  // namespace tanren
