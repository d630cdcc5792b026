#include "tanren/optimizer/packed_kernels.h"

#include "tanren/ops/eight_bit.h"
#include "tanren/ops/parallel_for.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace tanren {
namespace {

constexpr int64_t kBlockGrain = 64;  // blocks below which one thread is faster

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
float pack(const float* values, int64_t count, const EightBitBook& book, uint8_t* codes) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
  const float inverse = largest > 0 ? 1 / largest : 0;
  // The inverse of the smallest numbers overflows; such a block counts as zero.
  const float factor = std::isfinite(inverse) ? inverse : 0;
  for (int64_t i = 0; i < count; ++i) codes[i] = book.code(values[i] * factor);
  return factor > 0 ? largest : 0;
}

float from_half(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Adds 16 random bits below the last bit that is kept: the nearer the value is to the upper
// neighbour, the more often it is rounded up.
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

void packed_moment_elements(const PackedElements& e, const MomentNumbers& numbers) {
  const MomentUpdate update(numbers);
  const EightBitBook &signed_book = eight_bit_book(true), &unsigned_book = eight_bit_book(false);
  const int64_t blocks = (e.count + kPackedBlock - 1) / kPackedBlock;
  parallel_for(0, blocks, kBlockGrain, [&](int64_t first_block, int64_t last_block) {
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
  parallel_for(0, e.count, 1 << 14, [&](int64_t begin, int64_t end) {
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
