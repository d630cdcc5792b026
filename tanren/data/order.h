// Order: the order in which an epoch visits its samples. A pure function of (size, seed, epoch):
// any position is computed directly, without state or memory, so a resume costs nothing.
// Thread-safe.
#pragma once

#include <array>
#include <cstdint>

namespace tanren {

class Order {
 public:
  // shuffle = false: the identity.
  Order(int64_t size, uint64_t seed, int64_t epoch, bool shuffle);
  // Sample index at `position` in [0, size). A bijection: a six-round Feistel network with Philox
  // keys over the next power of four, applied until the result is inside [0, size) (Black and
  // Rogaway, CT-RSA 2002).
  int64_t operator()(int64_t position) const;

 private:
  static constexpr int kRounds = 6;
  uint64_t size_;
  int half_bits_ = 0;
  bool shuffle_;
  std::array<uint64_t, kRounds> keys_{};
};

}  // namespace tanren
