// Philox4x32-10 (Salmon et al., SC 2011): 128 random bits from a counter and a key. The file does
// not include torch, so that kernels of a device can include it.
#pragma once

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

}  // namespace tanren
