#include "tanren/optimizer/packed_kernels.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace tanren {
namespace {

constexpr int64_t kBlockGrain = 64;  // blocks below which one thread is faster

// Seven decades; the one below 10^-k has half as many values as the one above it, evenly spaced, each in
// the middle of its part. With 0 and 1 that makes 256.
std::array<float, 256> make_values(bool is_signed) {
  std::vector<double> values = {0.0, 1.0};
  constexpr int kDecades = 7;
  for (int decade = 0; decade < kDecades; ++decade) {
    const int parts = 1 << (is_signed ? decade : decade + 1);
    const double top = std::pow(10.0, decade - (kDecades - 1));
    for (int i = 0; i < parts; ++i) {
      const double value = top * (0.1 + 0.9 * (i + 0.5) / parts);
      values.push_back(value);
      if (is_signed) values.push_back(-value);
    }
  }
  std::sort(values.begin(), values.end());
  std::array<float, 256> result{};
  std::transform(values.begin(), values.end(), result.begin(),
                 [](double value) { return static_cast<float>(value); });
  return result;
}

// Values, the bounds between them, and for each upper half of a float's bits the code of the
// smallest number that begins so: no such range holds more than one bound.
struct Codebook {
  explicit Codebook(bool is_signed) : values(make_values(is_signed)) {
    for (size_t i = 0; i + 1 < 256; ++i) bounds[i] = (values[i] + values[i + 1]) / 2;
    bounds[255] = std::numeric_limits<float>::infinity();
    for (uint32_t high = 0; high < start.size(); ++high) {
      const bool is_negative = (high & 0x8000) != 0;
      const auto smallest = std::bit_cast<float>((high << 16) | (is_negative ? 0xffffU : 0U));
      const auto above = std::lower_bound(bounds.begin(), bounds.end() - 1, smallest);
      start[high] = std::isnan(smallest) ? 0 : static_cast<uint8_t>(above - bounds.begin());
    }
  }
  uint8_t code(float value) const {
    const uint8_t code = start[std::bit_cast<uint32_t>(value) >> 16];
    return static_cast<uint8_t>(code + (value > bounds[code] ? 1 : 0));
  }

  std::array<float, 256> values;
  std::array<float, 256> bounds{};
  std::array<uint8_t, 65536> start{};
};

const Codebook& codebook(bool is_signed) {
  static const Codebook with_sign(true), without(false);
  return is_signed ? with_sign : without;
}

// The arithmetic of moment_elements in fp32.
struct MomentUpdate {
  explicit MomentUpdate(const MomentNumbers& numbers)
      : decay(static_cast<float>(numbers.weight_decay)),
        kept(static_cast<float>(numbers.kept)),
        fresh1(static_cast<float>(1 - numbers.beta1)),
        fresh2(static_cast<float>(1 - numbers.beta2)),
        beta2(static_cast<float>(numbers.beta2)),
        eps(static_cast<float>(numbers.eps)),
        rate(static_cast<float>(numbers.momentum_rate)),
        scale(static_cast<float>(numbers.second_scale)) {}
  void operator()(float& parameter, float gradient, float& first, float& second) const {
    gradient += decay * parameter;
    first += fresh1 * (gradient - first);
    second = beta2 * second + fresh2 * gradient * gradient;
    parameter = kept * parameter - rate * first / (std::sqrt(second * scale) + eps);
  }
  float decay, kept, fresh1, fresh2, beta2, eps, rate, scale;
};

// Packs `count` values of a block; returns the scale.
float pack(const float* values, int64_t count, const Codebook& book, uint8_t* codes) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
  const float inverse = largest > 0 ? 1 / largest : 0;
  // The inverse of the least numbers is no number: such a block is as good as zero.
  const float factor = std::isfinite(inverse) ? inverse : 0;
  for (int64_t i = 0; i < count; ++i) codes[i] = book.code(values[i] * factor);
  return factor > 0 ? largest : 0;
}

float from_half(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Adds 16 random bits below the last that stays: rounds up as often as it is near.
uint16_t to_half(float value, uint32_t random) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + (random & 0xffffU)) >> 16);
}

// A well-mixed hash of 32 bits.
uint32_t mixed(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  return x ^ (x >> 16);
}

}  // namespace

const std::array<float, 256>& packed_values(bool is_signed) { return codebook(is_signed).values; }

uint8_t packed_code(float value, bool is_signed) { return codebook(is_signed).code(value); }

void packed_moment_elements(const PackedElements& e, const MomentNumbers& numbers) {
  const MomentUpdate update(numbers);
  const Codebook &signed_book = codebook(true), &unsigned_book = codebook(false);
  const int64_t blocks = (e.count + kPackedBlock - 1) / kPackedBlock;
  at::parallel_for(0, blocks, kBlockGrain, [&](int64_t first_block, int64_t last_block) {
    alignas(64) std::array<float, kPackedBlock> first, second;
    for (int64_t block = first_block; block < last_block; ++block) {
      const int64_t begin = block * kPackedBlock;
      const int64_t count = std::min(kPackedBlock, e.count - begin);
      const float first_scale = e.first_scale[block], second_scale = e.second_scale[block];
      uint8_t* first_codes = e.first + begin;
      uint8_t* second_codes = e.second + begin;
      for (int64_t i = 0; i < count; ++i) {
        first[i] = signed_book.values[first_codes[i]] * first_scale;
        second[i] = unsigned_book.values[second_codes[i]] * second_scale;
      }
      float* __restrict parameter = e.parameter + begin;
      const float* __restrict gradient = e.gradient + begin;
      for (int64_t i = 0; i < count; ++i) {
        update(parameter[i], gradient[i], first[i], second[i]);
      }
      e.first_scale[block] = pack(first.data(), count, signed_book, first_codes);
      e.second_scale[block] = pack(second.data(), count, unsigned_book, second_codes);
    }
  });
}

void half_moment_elements(const HalfElements& e, const MomentNumbers& numbers) {
  const MomentUpdate update(numbers);
  at::parallel_for(0, e.count, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float first = from_half(e.first[i]), second = from_half(e.second[i]);
      update(e.parameter[i], e.gradient[i], first, second);
      const uint32_t random = mixed(e.draw ^ mixed(e.begin + static_cast<uint32_t>(i)));
      e.first[i] = to_half(first, random);
      e.second[i] = to_half(second, random >> 16);
    }
  });
}

}  // namespace tanren
