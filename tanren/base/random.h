// Counter-based randomness: Philox4x32-10 (Salmon et al., SC 2011) keyed by what is drawn, not by
// when. Microbatch size, ranks, retry and resume therefore cannot change a draw.
//
// RandomScope holds, for the current thread, the (seed, attempt) and the samples of a forward;
// ops::dropout reads it. train_step opens one around each forward, and so do own training loops.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace tanren {

// One Philox4x32-10 block.
constexpr std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter,
                                         std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = 0xD2511F53ull * counter[0];
    const uint64_t b = 0xCD9E8D57ull * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

// 64 mixed bits of four numbers: for seeds and orders (splitmix64 finaliser over Philox).
constexpr uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto block = philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                             static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                            {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return (static_cast<uint64_t>(block[1]) << 32) | block[0];
}

class RandomScope {
 public:
  // `ids`: int64 [n] on the CPU, the sample ids along dim 0 of the forward's input.
  RandomScope(uint64_t seed, int64_t attempt, at::Tensor ids);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

  // The innermost scope of this thread; null if there is none.
  static const RandomScope* current();

  uint64_t seed() const { return seed_; }
  int64_t attempt() const { return attempt_; }
  const at::Tensor& ids() const { return ids_; }
  // The ids on `device`, copied there once, without a wait of the host.
  const at::Tensor& ids_on(at::Device device) const;

 private:
  uint64_t seed_;
  int64_t attempt_;
  at::Tensor ids_;
  mutable at::Tensor device_ids_;
  const RandomScope* outer_;
};

}  // namespace tanren
