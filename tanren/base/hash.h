// Hash64: XXH3 of what it is given, piece by piece. It tells whether data are the same as before; it is no
// protection from an attacker. The same on all machines of one byte order. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tanren {

class Hash64 {
 public:
  Hash64();
  ~Hash64();
  Hash64(const Hash64&) = delete;
  Hash64& operator=(const Hash64&) = delete;

  // With its length: "ab" and "c" are others than "a" and "bc".
  void add(std::string_view bytes);
  void add(int64_t value);
  // Of all that was added.
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 16 hexadecimal digits.
std::string hash_text(uint64_t hash);

}  // namespace tanren
