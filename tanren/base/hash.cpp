#include "tanren/base/hash.h"

#include "tanren/base/text.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tanren {

struct Hash64::State {
  XXH3_state_t xxh{};
};

Hash64::Hash64() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh); }

Hash64::~Hash64() = default;

void Hash64::add(std::string_view bytes) {
  add(static_cast<int64_t>(bytes.size()));
  XXH3_64bits_update(&state_->xxh, bytes.data(), bytes.size());
}

void Hash64::add(int64_t value) { XXH3_64bits_update(&state_->xxh, &value, sizeof value); }

uint64_t Hash64::value() const { return XXH3_64bits_digest(&state_->xxh); }

uint64_t content_hash(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string hash_text(uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace tanren
