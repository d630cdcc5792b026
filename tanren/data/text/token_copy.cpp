#include "tanren/data/text/token_copy.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace tanren {

namespace {

template <typename Id>
Id load(const char* source, int64_t index) {
  Id id;
  std::memcpy(&id, source + index * static_cast<int64_t>(sizeof(Id)), sizeof(Id));
  return id;
}

template <typename Id>
void widen(const char* __restrict source, int64_t count, int64_t* __restrict target) {
  for (int64_t i = 0; i < count; ++i) target[i] = static_cast<int64_t>(load<Id>(source, i));
}

template <typename Id>
uint64_t largest(const char* source, int64_t count) {
  using Unsigned = std::make_unsigned_t<Id>;
  Unsigned most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, load<Unsigned>(source, i));
  return most;
}

}  // namespace

int64_t width_of(TokenType type) {
  switch (type) {
    case TokenType::uint8: return 1;
    case TokenType::uint16: return 2;
    case TokenType::uint32:
    case TokenType::int32: return 4;
    case TokenType::int64: return 8;
  }
  return 0;
}

void widen_tokens(TokenType type, const char* source, int64_t count, int64_t* target) {
  switch (type) {
    case TokenType::uint8: return widen<uint8_t>(source, count, target);
    case TokenType::uint16: return widen<uint16_t>(source, count, target);
    case TokenType::uint32: return widen<uint32_t>(source, count, target);
    case TokenType::int32: return widen<int32_t>(source, count, target);
    case TokenType::int64: return widen<int64_t>(source, count, target);
  }
}

uint64_t largest_token(TokenType type, const char* source, int64_t count) {
  switch (type) {
    case TokenType::uint8: return largest<uint8_t>(source, count);
    case TokenType::uint16: return largest<uint16_t>(source, count);
    case TokenType::uint32: return largest<uint32_t>(source, count);
    case TokenType::int32: return largest<int32_t>(source, count);
    case TokenType::int64: return largest<int64_t>(source, count);
  }
  return 0;
}

}  // namespace tanren
