#include "tanren/ops/philox_group.h"

#include "tanren/base/random.h"

#include <algorithm>

namespace tanren {

void draw_group_portable(std::array<uint32_t, 2> key, uint64_t first, int64_t id,
                         uint32_t* values) {
  const auto low = static_cast<uint32_t>(id);
  const auto high = static_cast<uint32_t>(static_cast<uint64_t>(id) >> 32);
  for (uint32_t block = 0; block < kGroup / 4; ++block) {
    const auto words = philox(
        {static_cast<uint32_t>(first) + block, static_cast<uint32_t>(first >> 32), low, high}, key);
    std::copy(words.begin(), words.end(), values + 4 * block);
  }
}

}  // namespace tanren
