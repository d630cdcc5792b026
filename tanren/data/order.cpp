#include "tanren/data/order.h"

#include "tanren/base/random.h"

namespace tanren {

namespace {

constexpr uint64_t kStream = 0x0de2000000000000;  // distinct from every other use of the seed

// The finaliser of splitmix64: every input bit reaches every output bit.
constexpr uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
  return value ^ (value >> 31);
}

}  // namespace

Order::Order(int64_t size, uint64_t seed, int64_t epoch, bool shuffle)
    : size_(static_cast<uint64_t>(size)), shuffle_(shuffle && size > 1) {
  if (!shuffle_) return;
  while ((uint64_t{1} << (2 * half_bits_)) < size_) ++half_bits_;
  for (int round = 0; round < kRounds; ++round) {
    keys_[round] = random_bits(seed, kStream + static_cast<uint64_t>(epoch), round);
  }
}

int64_t Order::operator()(int64_t position) const {
  if (!shuffle_) return position;
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<uint64_t>(position);
  do {
    uint64_t left = value >> half_bits_, right = value & mask;
    for (const uint64_t key : keys_) {
      const uint64_t next = left ^ (mix(right + key) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits_) | right;
  } while (value >= size_);
  return static_cast<int64_t>(value);
}

}  // namespace tanren
