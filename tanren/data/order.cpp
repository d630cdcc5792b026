#include "tanren/data/order.h"

#include "tanren/base/random.h"

#include <cstddef>

namespace tanren {

namespace {
constexpr uint64_t kStream = 0x0de2000000000000;  // apart from every other use of the seed
constexpr int kRounds = 6;
}  // namespace

Order::Order(int64_t size, uint64_t seed, int64_t epoch, bool shuffle)
    : size_(static_cast<uint64_t>(size)),
      seed_(seed),
      epoch_(static_cast<uint64_t>(epoch)),
      shuffle_(shuffle) {
  while ((uint64_t{1} << (2 * half_bits_)) < size_) ++half_bits_;
}

int64_t Order::operator()(int64_t position) const {
  if (!shuffle_ || size_ < 2) return position;
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<uint64_t>(position);
  do {
    uint64_t left = value >> half_bits_, right = value & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = random_bits(seed_, kStream + epoch_, (round << 56) | right) & mask;
      const uint64_t next = left ^ mixed;
      left = right;
      right = next;
    }
    value = (left << half_bits_) | right;
  } while (value >= size_);
  return static_cast<int64_t>(value);
}

}  // namespace tanren
