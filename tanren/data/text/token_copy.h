// Converts narrow token ids to the int64 that models take. Plain loops that vectorise, in their own
// file because it is compiled with -O3. Sources may lie at any address. Called by
// token_windows.cpp.
#pragma once

#include <cstdint>

namespace tanren {

enum class TokenType { uint8, uint16, uint32, int32, int64 };

int64_t width_of(TokenType type);  // bytes of one id

// Writes `count` ids of `type` to `target`.
void widen_tokens(TokenType type, const char* source, int64_t count, int64_t* target);
// The largest of `count` ids, read as unsigned (so that a negative one is large); 0 for none.
uint64_t largest_token(TokenType type, const char* source, int64_t count);

}  // namespace tanren
