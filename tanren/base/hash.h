// Hash64: XXH3 of bytes and numbers that are added piece by piece. It shows whether data changed;
// it does not protect from an attacker. Equal on all machines of one byte order. Not thread-safe.
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

  // Adds the length too: "ab", "c" and "a", "bc" give different hashes.
  void add(std::string_view bytes);
  void add(int64_t value);
  // The hash of everything added so far.
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// XXH3 with seed 0 of these bytes alone.
uint64_t content_hash(std::string_view bytes);

// 16 hexadecimal digits.
std::string hash_text(uint64_t hash);

}  // namespace tanren
